"""`bertzoo bench` on the smallest work."""

import contextlib
import io
import json
import runpy
import sys

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from bertzoo.bench import case, ceiling
from bertzoo.bench.contestants import main
from bertzoo.cli.main import app, bench


def test_what_runs_in_a_contestants_process(backend, monkeypatch, capsys):
    monkeypatch.setitem(case.SIZES, "mini", (16, 1, 2, 32))
    work = case.Case("bertzoo", backend, "infer", "mini", length=16, batch_size=2, steps=2)
    monkeypatch.setattr(sys, "argv", ["contestants", json.dumps(work.to_json())])
    main()
    measured = case.Measured(**json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("MEASURED ")))
    assert 0 < measured.seconds < 10 and 0 < measured.first < 100 and measured.memory > 2**20
    assert f"{backend} " in measured.versions and measured.device
    normal = keras.random.normal
    monkeypatch.setattr(keras.random, "normal", lambda shape: normal((128, 128)))  # not for seconds
    assert 1e9 < ceiling.product_rate("bfloat16") < np.inf


@pytest.mark.once
def test_it_measures_the_library_beside_a_peer(tmp_path, monkeypatch):
    """The library in a process of its own. The others run as programs in this one, which has imported all they need."""
    backend, child = keras.backend.backend(), bench._child

    def here(module, argument, *rest):
        if '"bertzoo"' in argument:
            return child(module, argument, *rest)
        monkeypatch.setattr(sys, "argv", [module, argument])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            runpy.run_module(module, run_name="__main__")
        return json.loads(printed.getvalue().splitlines()[-1].removeprefix("MEASURED "))

    monkeypatch.setattr(bench, "_child", here)
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
def test_a_contestant_that_fails_is_a_row_of_the_table(monkeypatch):
    child = bench._child

    def given_less(module, argument, backend, timeout):
        if "ceiling" in module:
            return 1e10
        assert timeout == 10
        return child(module, argument, backend, 0.5)

    monkeypatch.setattr(bench, "_child", given_less)
    arguments = ["bench", "--backend", keras.backend.backend(), "--contestant", "bertzoo", "--mode", "infer"]
    arguments += ["--padding", "none", "--length", "512", "--batch-size", "64", "--steps", "50", "--timeout", "10"]
    ended = CliRunner().invoke(app, [*arguments, "--size", "base"])
    assert ended.exit_code == 0 and "gave up after 0.5 s" in ended.output
