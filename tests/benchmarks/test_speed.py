"""The speed benchmark on the smallest work."""

import json

import keras
import numpy as np
import pytest
from benchmarks import case, common, run, speed


def test_what_runs_in_a_contestants_process(backend, monkeypatch):
    monkeypatch.setitem(case.SIZES, "mini", (16, 1, 2, 32))
    work = case.Case("bertzoo", backend, "infer", "mini", length=16, batch_size=2, steps=2)
    measured = case.Measured(**speed.child(work.to_json()))
    assert 0 < measured.seconds < 10 and 0 < measured.first < 100 and measured.memory > 2**20
    assert f"{backend} " in measured.versions and measured.device
    normal = keras.random.normal
    monkeypatch.setattr(keras.random, "normal", lambda shape: normal((128, 128)))  # not for seconds
    assert 1e9 < speed.child("bfloat16") < np.inf


@pytest.mark.slow
@pytest.mark.once
def test_it_measures_the_library_beside_a_peer(tmp_path, monkeypatch, capsys):
    """The library in a process of its own. The others run in this one, which has imported all they need."""
    backend = keras.backend.backend()

    def here(command, argument, *rest):
        if argument != "float32" and argument["contestant"] == "bertzoo":
            return common.run_in_process(command, argument, *rest)
        return speed.child(argument)

    monkeypatch.setattr(speed, "run_in_process", here)
    names = ["bertzoo", *["transformers"] * (backend == "torch")]  # which is the same beside any backend
    arguments = ["speed", "--backend", backend, "--contestant", *names, "--mode", "infer", "--padding", "real"]
    arguments += ["--length", "16", "--batch-size", "2", "--steps", "2", "--out", str(tmp_path / "speed.json")]
    assert run.main(arguments) is None
    content = json.loads((tmp_path / "speed.json").read_text())
    assert [row["case"]["contestant"] for row in content["results"]] == names
    for row in content["results"]:
        assert row["tokens_per_second"] > 0 and row["memory"] > 2**20 and 0 < row["share_of_ceiling"] < 1
    printed = capsys.readouterr().out
    assert all(name in printed for name in names) and "Ceiling" in printed


@pytest.mark.once
def test_unknown_names_get_a_sentence(capsys):
    with pytest.raises(SystemExit):
        run.main(["speed", "--contestant", "fastbert"])
    assert "invalid choice: 'fastbert'" in capsys.readouterr().err
    assert "run.py COMMAND --help" in run.main(["fast"])


@pytest.mark.once
def test_a_contestant_that_fails_is_a_row_of_the_table(monkeypatch, capsys):
    def given_less(command, argument, environment, timeout):
        if argument == "float32":
            return 1e10
        assert timeout == 10
        return common.run_in_process(command, argument, environment, 0.5)

    monkeypatch.setattr(speed, "run_in_process", given_less)
    arguments = ["speed", "--backend", keras.backend.backend(), "--contestant", "bertzoo", "--mode", "infer"]
    arguments += ["--padding", "none", "--length", "512", "--batch-size", "64", "--steps", "50", "--timeout", "10"]
    assert run.main([*arguments, "--size", "base"]) is None
    assert "gave up after 0.5 s" in capsys.readouterr().out


@pytest.mark.once
@pytest.mark.parametrize("command", run.COMMANDS)
def test_every_command_explains_itself(command, capsys):
    if command == "kernels":  # hands its options to pytest
        pytest.skip("a GPU's")
    with pytest.raises(SystemExit) as ended:
        run.main([command, "--help"])
    assert ended.value.code == 0 and f"run.py {command}" in capsys.readouterr().out


@pytest.mark.once
def test_a_process_that_fails_says_why():
    said = common.run_in_process("speed", {"contestant": "none"}, {"KERAS_BACKEND": keras.backend.backend()})
    assert "missing" in said and "backend" in said


@pytest.mark.once
def test_the_recipe_of_the_peers_is_berts():
    """No decay on biases and LayerNorm; the rate rises over a tenth of the steps and falls to 0."""
    torch = pytest.importorskip("torch")
    model = torch.nn.ModuleDict({"dense": torch.nn.Linear(2, 2), "LayerNorm": torch.nn.LayerNorm(2)})
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = common.torch_trainer(model, 0.1, 20)
    for _ in range(2):  # of zeros: only the decay moves a weight
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        step()
    after = dict(model.named_parameters())
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"dense.weight"}
    torch.testing.assert_close(after["dense.weight"].detach(), before["dense.weight"] * (1 - 0.05 * 0.01))
