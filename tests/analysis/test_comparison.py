"""`bertzoo compare` against what transformers and the formulas say."""

import json

import pytest
from typer.testing import CliRunner

from bertzoo.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def two(write_checkpoint):
    return write_checkpoint(), write_checkpoint("BertForSequenceClassification", num_hidden_layers=1)


@pytest.mark.slow
def test_numbers_on_screen_in_the_file_and_drawn(two, tmp_path):
    (first, one), (second, other) = two
    out, plot = tmp_path / "found.json", tmp_path / "found.svg"
    options = ("--length", 8, "--length", 40, "--batch-size", 2, "--repeats", 2, "--out", out, "--plot", plot)
    shown = run(first, second, *options)
    assert shown.exit_code == 0, shown.output
    content = json.loads(out.read_text())
    assert content["lengths"] == [8, 40] and content["batch_size"] == 2 and "keras" in content["versions"]
    for row, directory, model, layers in zip(content["costs"], (first, second), (one, other), (2, 1)):
        assert row["name"] == str(directory)
        assert sum(row["parameters"].values()) == model.num_parameters()
        assert row["flops_per_token"] == [layers * (8 * 32**2 + 4 * 32 * 48 + 4 * n * 32) for n in (8, 40)]
        assert row["activation_bytes"] == [4 * n * (layers * (8 * 32 + 2 * 48) + 32) for n in (8, 40)]
        assert all(0 < n < 60_000 for n in row["milliseconds"])
        assert all(n > 1 for n in row["tokens_per_second"])
        assert f"{model.num_parameters():,}" in shown.output
        assert f"{row['flops_per_token'][1] / 1e6:.2f}" in shown.output
    assert "feed-forward" in shown.output and "tokens/s, 2 texts" in shown.output
    assert plot.read_text().lstrip().startswith("<?xml")


def test_what_cannot_be_compared_is_told(two):
    (first, _), (second, _) = two
    for arguments, said in (
        ((first,), "at least two"),
        ((first, second, "--length", 65), "takes up to 64 tokens"),
        ((first, second, "--out", "found.csv"), ".json"),
        ((first, second, "--plot", "found.txt"), ".png"),
    ):
        shown = run(*arguments)
        assert shown.exit_code and said in shown.output


def test_published_ones_need_no_files(two, monkeypatch):
    times = "bertzoo.analysis.comparison._times"
    monkeypatch.setattr(times, lambda config, lengths, *rest: ([0.5] * len(lengths), [7.0] * len(lengths)))
    shown = run("google-bert/bert-base-uncased", two[0][0], "--length", 16)
    assert shown.exit_code == 0, shown.output
    assert "109,482,240" in shown.output
