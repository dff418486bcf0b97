"""`bertzoo fit` and `predict` for words, answers and choices, on tiny files."""

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from bertzoo.cli.main import app

# The tasks are fit, saved and loaded on each backend in tests/tasks, and a classifier by these commands in test_cli.py.
pytestmark = pytest.mark.once

CONLL = "we O\nsaw O\nparis B-X\n\nrome B-X\nagain O\n\n" * 4
RECORDS = [
    {
        "id": str(i),
        "question": "we saw",
        "answers": [{"text": "a film", "answer_start": 7}] if i % 2 else [],
        "is_impossible": not i % 2,
    }
    for i in range(8)
]
SQUAD = json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "we saw a film", "qas": RECORDS}]}]})
CHOICES = "question,choice0,choice1,label\n" + "we saw,good,bad,0\nnever,bad,good,1\n" * 4


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint(num_hidden_layers=1)[0]


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("name", "content", "report"),
    [("a.conll", CONLL, "entity F1"), ("a.json", SQUAD, "no answer f1"), ("a.csv", CHOICES, "accuracy")],
)
def test_fit_and_predict(preset, tmp_path, name, content, report):
    (tmp_path / name).write_text(content)
    options = ("--preset", preset, "--epochs", 1, "--batch-size", 4, "--dev", tmp_path / name)
    said = run("fit", tmp_path / name, "--out", tmp_path / "model", *options)
    assert report in said and "Saved in" in said
    given = ["we saw paris", "rome"] if name == "a.conll" else ["--file", tmp_path / name]
    table = list(csv.reader(io.StringIO(run("predict", tmp_path / "model", *given))))
    heads = {"a.conll": "entity", "a.json": "answer", "a.csv": "choice"}
    assert heads[name] in table[0]
    if name != "a.conll":
        assert len(table) == 9
    if name == "a.csv":
        assert all(row[1] in ("good", "bad") for row in table[1:])


def test_a_part_is_held_out_where_no_file_is_given(preset, tmp_path):
    (tmp_path / "a.conll").write_text(CONLL)
    said = run("fit", tmp_path / "a.conll", "--out", tmp_path / "m", "--preset", preset, "--epochs", 1)
    assert "7 sentences to learn from, 1 held out; 2 tags (BIO)" in said


def test_questions_need_a_file(preset, tmp_path):
    (tmp_path / "a.json").write_text(SQUAD)
    run("fit", tmp_path / "a.json", "--out", tmp_path / "m", "--preset", preset, "--epochs", 1)
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "m"), "a text"])
    assert result.exit_code == 1 and "--file" in result.output + getattr(result, "stderr", "")
