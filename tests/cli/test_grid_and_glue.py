"""`bertzoo grid` and `bertzoo glue`: what is run, what is kept, and the scores against scikit-learn and SciPy."""

import json

import numpy as np
import pytest
from scipy import stats
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


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join("\t".join(map(str, row)) for row in [[*columns], *zip(*columns.values())]) + "\n")
    return path


class Fake:
    """In place of a fine-tuned model: its answers depend on the settings alone."""

    calls: list = []
    stop_at: int | None = None

    def __init__(self, parts, settings):
        Fake.calls.append(settings)
        if len(Fake.calls) == Fake.stop_at:
            raise KeyboardInterrupt
        self.parts = parts
        self.rng = np.random.default_rng([settings.seed, settings.batch_size, round(1e6 * settings.learning_rate or 0)])

    def classify(self, x):
        count = len(x[0]) if isinstance(x, tuple) else len(x)
        if self.parts.classes is None:
            return [{"value": value} for value in self.rng.normal(size=count)]
        return [{"label": self.parts.classes[i]} for i in self.rng.integers(0, len(self.parts.classes), count)]

    def save_to_preset(self, directory):
        directory.mkdir(parents=True)


@pytest.fixture
def fake(monkeypatch):
    Fake.calls, Fake.stop_at = [], None
    monkeypatch.setattr(trials, "fine_tune", Fake)
    monkeypatch.setattr(grid, "fine_tune", Fake)
    return Fake


# ---- grid


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
    found = {}
    for record in runs:
        cell = (record["batch_size"], record["learning_rate"])
        found.setdefault(cell, []).append(record["scores"]["accuracy"])
    assert list(found) == [(size, rate) for size in (16, 32) for rate in (2e-5, 3e-5, 5e-5)]
    best = max(found, key=lambda cell: np.mean(found[cell]))
    assert (fake.calls[-1].batch_size, fake.calls[-1].learning_rate) == best
    assert fake.calls[-1].seed == int(np.argmax(found[best]))
    for scores in found.values():
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
    assert "no directory of a grid" in complaint("grid", file, "--out", tmp_path)
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "grid.json").write_text("[1")
    assert "no list of runs" in complaint("grid", file, "--out", tmp_path / "g")


# ---- GLUE


@pytest.mark.once
def test_each_task_has_its_own_metrics_and_missing_ones_are_told(fake, tmp_path):
    pairs = {"sentence1": TEXTS, "sentence2": TEXTS[::-1]}
    scores = np.round(np.random.default_rng(0).uniform(0, 5, len(TEXTS)), 2)
    for split in ("train", "dev"):
        write(tmp_path / "data" / "mrpc" / f"{split}.tsv", label=LABELS, **pairs)
        write(tmp_path / "data" / "stsb" / f"{split}.tsv", score=scores, **pairs)
        write(tmp_path / "data" / "cola" / f"{split}.tsv", sentence=TEXTS, label=LABELS)
    command = ("glue", "m", "--data", tmp_path / "data", "--out", tmp_path / "glue.json", "--learning-rate", 1e-3)
    said = run(*command)
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
    run(*command)
    assert len(fake.calls) == 3
    run(*command, "--rows", 5, "--tasks", "mrpc")
    assert len(fake.calls) == 4


@pytest.mark.once  # regression is fit on each backend in test_text_classifier.py
def test_glue_fits_a_regression(preset, tmp_path):
    scores = [5.0 if "good" in text or text == "great" else 0.5 for text in TEXTS]
    for split in ("train", "test"):
        write(tmp_path / "stsb" / f"{split}.tsv", score=scores, sentence1=TEXTS, sentence2=TEXTS)
    options = ("--out", tmp_path / "glue.json", "--split", "test", "--epochs", 6, "--learning-rate", 1e-2)
    said = run("glue", preset, "--data", tmp_path, "--tasks", "stsb", *options, "--max-length", 64)
    assert "1 of 9 tasks" in said
    assert json.loads((tmp_path / "glue.json").read_text())["runs"][0]["scores"]["pearson"] > 0.5


@pytest.mark.once
def test_mistakes_in_glue_are_sentences(fake, tmp_path):
    assert "none of GLUE's tasks" in complaint("glue", "m", "--data", tmp_path, "--tasks", "sst2,squad")
    assert "holds none of the tasks" in complaint("glue", "m", "--data", tmp_path, "--out", tmp_path / "a.json")
    write(tmp_path / "rte" / "train.tsv", sentence1=["a", "b"], sentence2=["c", "d"], label=["0", "1"])
    write(tmp_path / "rte" / "dev.tsv", sentence1=["a"], sentence2=["c"], label=["2"])
    assert "dev has the label '2'" in complaint("glue", "m", "--data", tmp_path, "--out", tmp_path / "a.json")
