"""The benchmark `glue`: what is run, what is kept, and the scores against scikit-learn and SciPy."""

import json

import numpy as np
import pytest
from benchmarks import run
from fake_trials import Fake, write
from scipy import stats
from sklearn import metrics

from bertzoo.cli import trials

TEXTS = ["a good film", "a bad film", "the plot was dull and bad", "never again", "great", "we saw it in rome"] * 4
LABELS = ["1", "0", "0", "0", "1", "1"] * 4


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint(num_hidden_layers=1)[0]


def main(*arguments):
    return run.main([str(argument) for argument in arguments])


def run_glue(capsys, *arguments) -> str:
    assert main(*arguments) is None
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The benchmark sets it, for what reads the data."""
    monkeypatch.setenv("BERTZOO_DATA", "")


@pytest.fixture
def fake(monkeypatch):
    Fake.calls, Fake.stop_at = [], None
    monkeypatch.setattr(trials, "fine_tune_classifier", Fake)
    return Fake


@pytest.mark.once
def test_each_task_has_its_own_metrics_and_missing_ones_are_told(fake, tmp_path, capsys):
    pairs = {"sentence1": TEXTS, "sentence2": TEXTS[::-1]}
    scores = np.round(np.random.default_rng(0).uniform(0, 5, len(TEXTS)), 2)
    for split in ("train", "dev"):
        write(tmp_path / "data" / "mrpc" / f"{split}.tsv", label=LABELS, **pairs)
        write(tmp_path / "data" / "stsb" / f"{split}.tsv", score=scores, **pairs)
        write(tmp_path / "data" / "cola" / f"{split}.tsv", sentence=TEXTS, label=LABELS)
    command = ("glue", "m", "--data", tmp_path / "data", "--out", tmp_path / "glue.json", "--learning-rate", 1e-3)
    said = run_glue(capsys, *command)
    assert "rte: left out" in said and "3 of 9 tasks" in said
    labels = np.array(["0", "1"])[np.random.default_rng([0, 32, 1000]).integers(0, 2, len(TEXTS))]
    values = np.random.default_rng([0, 32, 1000]).normal(size=len(TEXTS))
    expected = {
        "cola": [metrics.matthews_corrcoef(LABELS, labels)],
        "mrpc": [metrics.f1_score(LABELS, labels, pos_label="1"), metrics.accuracy_score(LABELS, labels)],
        "stsb": [stats.pearsonr(scores, values)[0], stats.spearmanr(scores, values)[0]],
    }
    for task, figures in expected.items():
        line = next(line for line in said.splitlines() if line.startswith(f"{task}, seed 0"))
        assert all(f"{100 * figure:.1f} %" in line for figure in figures)
    assert f"{100 * np.mean([np.mean(figures) for figures in expected.values()]):.1f}" in said.splitlines()[-2]
    assert [settings.max_length for settings in fake.calls] == [128] * 3
    run_glue(capsys, *command)
    assert len(fake.calls) == 3
    run_glue(capsys, *command, "--examples", 5, "--tasks", "mrpc")
    assert len(fake.calls) == 4


@pytest.mark.once  # regression is fit on each backend in test_text_classifier.py
def test_glue_fits_a_regression(preset, tmp_path, capsys):
    scores = [5.0 if "good" in text or text == "great" else 0.5 for text in TEXTS]
    for split in ("train", "test"):
        write(tmp_path / "stsb" / f"{split}.tsv", score=scores, sentence1=TEXTS, sentence2=TEXTS)
    options = ("--out", tmp_path / "glue.json", "--split", "test", "--epochs", 6, "--learning-rate", 1e-2)
    said = run_glue(capsys, "glue", preset, "--data", tmp_path, "--tasks", "stsb", *options, "--max-length", 64)
    assert "1 of 9 tasks" in said
    assert json.loads((tmp_path / "glue.json").read_text())["runs"][0]["scores"]["pearson"] > 0.5


@pytest.mark.once
def test_mistakes_in_glue_are_sentences(fake, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main("glue", "m", "--data", tmp_path, "--tasks", "sst2", "squad")
    assert "invalid choice: 'squad'" in capsys.readouterr().err
    assert "holds none of the tasks" in main("glue", "m", "--data", tmp_path, "--out", tmp_path / "a.json")
    write(tmp_path / "rte" / "train.tsv", sentence1=["a", "b"], sentence2=["c", "d"], label=["0", "1"])
    write(tmp_path / "rte" / "dev.tsv", sentence1=["a"], sentence2=["c"], label=["2"])
    with pytest.raises(ValueError, match="dev has the label '2'"):
        main("glue", "m", "--data", tmp_path, "--out", tmp_path / "a.json")
