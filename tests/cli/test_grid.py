"""`bertzoo grid`: what is run, what is kept, and the scores against scikit-learn."""

import json

import numpy as np
import pytest
from fake_trials import Fake, write
from sklearn import metrics
from typer.testing import CliRunner

import bertzoo as bz
from bertzoo.cli import grid, trials
from bertzoo.cli.main import app

TEXTS = ["a good film", "a bad film", "the plot was dull and bad", "never again", "great", "we saw it in rome"] * 4
LABELS = ["1", "0", "0", "0", "1", "1"] * 4


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint(num_hidden_layers=1)[0]


def run(*arguments) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def complaint(*arguments) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 1, result.output
    return result.stderr


@pytest.fixture
def fake(monkeypatch):
    Fake.calls, Fake.stop_at = [], None
    monkeypatch.setattr(trials, "fine_tune_classifier", Fake)
    monkeypatch.setattr(grid, "fine_tune_classifier", Fake)
    return Fake


# ---- grid


@pytest.mark.slow
@pytest.mark.once
def test_the_best_cell_is_fit_again_and_saved(preset, tmp_path):
    file = write(tmp_path / "a.tsv", text=TEXTS, label=LABELS)
    options = ("--preset", preset, "--out", tmp_path / "grid", "--dev", file)
    cells = ("--batch-sizes", 24, "--learning-rates", "1e-6,2e-2", "--epochs", 12)
    said = run("grid", file, *options, *cells)
    assert "2 cells, 2 runs" in said and "best" in said
    low, high = (record["scores"] for record in json.loads((tmp_path / "grid" / "grid.json").read_text())["runs"])
    assert high["accuracy"] > low["accuracy"]
    model = bz.TextClassifier.from_preset(tmp_path / "grid" / "best", verbose=False)
    answers = [answer["label"] for answer in model.classify(TEXTS)]
    assert metrics.accuracy_score(LABELS, answers) == pytest.approx(high["accuracy"])
    assert metrics.f1_score(LABELS, answers, pos_label="1") == pytest.approx(high["f1"])
    assert metrics.matthews_corrcoef(LABELS, answers) == pytest.approx(high["matthews"])


@pytest.mark.once
def test_what_is_finished_is_not_done_again(fake, tmp_path):
    file = write(tmp_path / "a.tsv", text=TEXTS, label=LABELS)
    command = ("grid", file, "--out", tmp_path / "grid", "--dev", file, "--seeds", 2, "--epochs", "3")
    fake.stop_at = 8
    assert CliRunner().invoke(app, [str(a) for a in command]).exit_code == 1
    path = tmp_path / "grid" / "grid.json"
    assert len(json.loads(path.read_text())["runs"]) == 7 and not (tmp_path / "grid" / "best").exists()
    fake.calls, fake.stop_at = [], None
    table = run(*command)
    assert len(fake.calls) == 12 - 7 + 1  # and the best once more
    runs = json.loads(path.read_text())["runs"]
    actual = {}
    for record in runs:
        cell = (record["batch_size"], record["learning_rate"])
        actual.setdefault(cell, []).append(record["scores"]["accuracy"])
    assert list(actual) == [(size, rate) for size in (16, 32) for rate in (2e-5, 3e-5, 5e-5)]
    best = max(actual, key=lambda cell: np.mean(actual[cell]))
    assert (fake.calls[-1].batch_size, fake.calls[-1].learning_rate) == best
    assert fake.calls[-1].seed == int(np.argmax(actual[best]))
    for scores in actual.values():
        assert f"{100 * np.mean(scores):.1f}" in table and f"{100 * np.std(scores, ddof=1):.1f}" in table
    write(tmp_path / "a.tsv", text=TEXTS, label=LABELS[::-1])  # other data, other runs
    fake.calls = []
    (tmp_path / "grid" / "best").rmdir()
    run(*command)
    assert len(fake.calls) == 13


@pytest.mark.once
def test_mistakes_in_a_grid_are_sentences(fake, tmp_path):
    file = write(tmp_path / "a.tsv", text=TEXTS, label=LABELS)
    assert "separated by commas" in complaint("grid", file, "--out", tmp_path / "g", "--epochs", "2;3")
    assert "numbers above 0" in complaint("grid", file, "--out", tmp_path / "g", "--learning-rates", "0")
    assert "accuracy, f1, matthews" in complaint("grid", file, "--out", tmp_path / "g", "--metric", "spearman")
    assert "must be empty or the directory of a grid" in complaint("grid", file, "--out", tmp_path)
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "grid.json").write_text("[1")
    assert "must be a list of runs" in complaint("grid", file, "--out", tmp_path / "g")
