"""`bertzoo compare` against what transformers and the file system say."""

import json

import pytest
from typer.testing import CliRunner

from bertzoo.cli import app


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def two(write_checkpoint):
    return write_checkpoint(), write_checkpoint("BertForSequenceClassification", num_hidden_layers=1)


def test_numbers_on_screen_and_in_the_file(two, tmp_path):
    (first, one), (second, other) = two
    out = tmp_path / "found.json"
    shown = run(first, second, "--length", 8, "--length", 40, "--batch-size", 2, "--repeats", 2, "--out", out)
    assert shown.exit_code == 0, shown.output
    content = json.loads(out.read_text())
    assert content["batch_size"] == 2 and len(content["models"]) == 2
    for row, directory, model, layers in zip(content["models"], (first, second), (one, other), (2, 1)):
        assert row["name"] == str(directory)
        assert row["parameters"] == model.num_parameters() == sum(row["parameters_by_part"].values())
        assert row["file_bytes"] == (directory / "model.safetensors").stat().st_size
        for length in (8, 40):
            expected = layers * (8 * 32**2 + 4 * 32 * 48 + 4 * length * 32)
            assert row["flops_per_token"][str(length)] == expected
            assert 0 < row["milliseconds"][str(length)] < 60_000
        assert f"{row['parameters']:,}" in shown.output
        assert f"{row['flops_per_token']['40'] / 1e6:.2f}" in shown.output
    assert "feed-forward" in shown.output and "ms for 2 texts, 8 tokens" in shown.output


def test_one_name_and_long_texts_are_told(two):
    (first, _), (second, _) = two
    shown = run(first)
    assert shown.exit_code and "at least two" in shown.output
    shown = run(first, second, "--length", 65)
    assert shown.exit_code and "takes up to 64 tokens" in shown.output
    shown = run(first, second, "--out", "found.csv")
    assert shown.exit_code and ".json" in shown.output


def test_published_ones_need_no_files(two, monkeypatch):
    monkeypatch.setattr("bertzoo.commands.compare._seconds", lambda config, lengths, *rest: [(n, 0.5) for n in lengths])
    shown = run("google-bert/bert-base-uncased", two[0][0], "--length", 16)
    assert shown.exit_code == 0, shown.output
    assert "109,482,240" in shown.output and "–" in shown.output and "500.0" in shown.output
