"""`bertzoo bench` on the smallest work."""

import json

import keras
import pytest
from typer.testing import CliRunner

from bertzoo.cli import app


def test_it_measures_the_library_beside_a_peer(tmp_path):
    backend = keras.backend.backend()
    contestants = ["bertzoo", *["transformers"] * (backend == "torch")]  # which is the same beside any backend
    arguments = ["bench", "--backend", backend, *(part for name in contestants for part in ("--contestant", name))]
    arguments += ["--mode", "infer", "--padding", "real", "--length", "16", "--batch-size", "2", "--steps", "2"]
    out = tmp_path / "bench.json"
    ended = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert ended.exit_code == 0, ended.output
    content = json.loads(out.read_text())
    assert [row["case"]["contestant"] for row in content["results"]] == contestants
    for row in content["results"]:
        assert row["tokens_per_second"] > 0 and row["memory"] > 2**20 and 0 < row["share_of_ceiling"] < 1
    assert all(name in ended.output for name in contestants) and "Ceiling" in ended.output


@pytest.mark.once
def test_unknown_names_get_a_sentence():
    ended = CliRunner().invoke(app, ["bench", "--contestant", "fastbert"])
    assert ended.exit_code == 1 and "'fastbert' is unknown" in ended.output


@pytest.mark.once
def test_a_contestant_that_fails_is_a_row_of_the_table(tmp_path):
    arguments = ["bench", "--backend", keras.backend.backend(), "--contestant", "bertzoo", "--mode", "infer"]
    arguments += ["--padding", "none", "--length", "512", "--batch-size", "64", "--steps", "50", "--timeout", "10"]
    ended = CliRunner().invoke(app, [*arguments, "--size", "base"])
    assert ended.exit_code == 0 and "gave up after 10 s" in ended.output
