"""Presets whose matrices are stored in 8 bits."""

import shutil

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.int8_storage import store_in_int8
from bertzoo.checkpoints.loading import weights_by_name
from bertzoo.cli.main import app


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint("BertForSequenceClassification", num_hidden_layers=1)[0]


def test_weights_are_within_half_a_step_and_load_as_floats(preset, tmp_path):
    store_in_int8(preset, tmp_path / "small")
    exact = bz.TextClassifier.from_preset(preset, verbose=False)
    stored = bz.TextClassifier.from_preset(tmp_path / "small", verbose=False)
    for name, weight in weights_by_name(exact).items():
        value, again = np.asarray(weight), np.asarray(weights_by_name(stored)[name])
        assert again.dtype == np.float32
        if value.ndim == 2:
            columns = name.endswith("kernel")  # which are the rows of the file
            largest = np.abs(value).max(axis=0 if columns else 1, keepdims=True)
            assert np.all(np.abs(value - again) <= 0.5001 * largest / 127)
        else:
            np.testing.assert_array_equal(value, again)
    sizes = [next(folder.glob("*.safetensors")).stat().st_size for folder in (tmp_path / "small", preset)]
    assert sizes[0] < 0.45 * sizes[1]
    stored.save_to_preset(tmp_path / "floats")  # and back
    assert (tmp_path / "floats" / "model.safetensors").exists()


@pytest.mark.once
def test_the_command_keeps_the_other_files(preset, tmp_path):
    ended = CliRunner().invoke(app, ["convert", str(preset), str(tmp_path / "small"), "--store-int8"])
    assert ended.exit_code == 0, ended.output
    names = {path.name for path in (tmp_path / "small").iterdir()}
    assert names == {path.name for path in preset.iterdir()} - {"model.safetensors"} | {"model.int8.safetensors"}


@pytest.mark.once
def test_weights_in_folders_of_modules_stay(preset, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(preset, source)
    (source / "2_Dense").mkdir()
    (source / "2_Dense" / "model.safetensors").write_bytes(b"kept")
    (source / "model-00001-of-00002.safetensors").write_bytes(b"a shard of other weights")
    store_in_int8(source, tmp_path / "small")
    assert (tmp_path / "small" / "2_Dense" / "model.safetensors").read_bytes() == b"kept"
    assert [path.name for path in (tmp_path / "small").glob("*.safetensors")] == ["model.int8.safetensors"]


@pytest.mark.once
@pytest.mark.parametrize("step", [np.ones(3, "float32"), np.ones(4, "float64")])
def test_other_steps_are_refused(preset, tmp_path, step):
    tensors = {"a": np.zeros((4, 2), "int8"), "a_step": step}
    safetensors.numpy.save_file(tensors, tmp_path / "model.int8.safetensors")
    (tmp_path / "config.json").write_text((preset / "config.json").read_text())
    with pytest.raises(CheckpointError, match="one for each row"):
        bz.Encoder.from_preset(tmp_path, verbose=False)
