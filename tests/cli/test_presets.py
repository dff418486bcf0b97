"""`bertzoo list` on the command line."""

import pytest
from typer.testing import CliRunner

from bertzoo.checkpoints.catalog import load_catalog
from bertzoo.cli.main import app

pytestmark = pytest.mark.once


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


def listed(output: str) -> set[str]:
    return {word for line in output.splitlines() for word in line.split() if word in load_catalog()}


def test_list_shows_all_of_the_catalog():
    shown = run("list")
    assert shown.exit_code == 0 and listed(shown.output) == set(load_catalog())
    row = next(line for line in shown.output.splitlines() if "distilbert_small_en" in line)
    assert max(map(len, shown.output.splitlines())) <= 120
    assert "bert_mini_en" in shown.output and "6 × 256" in row  # whose file says n_layers and dim


@pytest.mark.parametrize(
    "chosen", [{"family": "deberta"}, {"task": "sentence-embedding"}, {"family": "bert", "task": "question-answering"}]
)
def test_list_is_filtered(chosen):
    shown = run("list", *(part for name, value in chosen.items() for part in (f"--{name}", value)))
    expected = {
        name
        for name, row in load_catalog().items()
        if row.model_type == chosen.get("family", row.model_type) and chosen.get("task", row.tasks[0]) in row.tasks
    }
    assert shown.exit_code == 0 and listed(shown.output) == expected and 1 < len(expected) < len(load_catalog())


def test_unknown_filters_are_told():
    for option, value in (("family", "gpt2"), ("task", "chess")):
        shown = run("list", f"--{option}", value)
        assert shown.exit_code and f"--{option} {value} is not in the catalog" in shown.output


def test_filters_that_nothing_passes_are_told():
    shown = run("list", "--family", "electra", "--task", "sentence-embedding")
    assert shown.exit_code == 0 and "no electra checkpoint for sentence-embedding" in shown.output
    assert "licence" not in shown.output


def test_list_describes_one():
    shown = run("list", "microsoft/deberta-v3-base")
    assert shown.exit_code == 0 and "183,831,552" in shown.output and "embeddings" in shown.output
    shown = run("list", "bert_mini_en")
    assert shown.exit_code == 0 and "head" in shown.output
    shown = run("list", "microsoft/deberta-v3-bse")
    assert shown.exit_code and "microsoft/deberta-v3-base" in shown.output
