import json
import struct

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.tensors import open_tensors_in_directory, open_tensors_in_file

pytestmark = pytest.mark.once

STATE = {
    "a.weight": torch.arange(6.0).reshape(2, 3) / 7,
    "half": torch.arange(4).half(),
    "brain": (torch.arange(5) / 3).bfloat16(),
    "ids": torch.arange(512).expand(1, -1).contiguous(),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 4),
}
DTYPES = {"a.weight": "F32", "half": "F16", "brain": "BF16", "ids": "I64", "scalar": "F32", "empty": "F32"}


def write_state(directory, form):
    """The same state in each of the four forms, written by the libraries themselves."""
    first, second = dict(list(STATE.items())[:3]), dict(list(STATE.items())[3:])
    stem, suffix = ("model", "safetensors") if "safetensors" in form else ("pytorch_model", "bin")
    save = safetensors.torch.save_file if suffix == "safetensors" else torch.save
    if form.startswith("sharded"):
        names = [f"{stem}-0000{i}-of-00002.{suffix}" for i in (1, 2)]
        for name, part in zip(names, (first, second)):
            save(part, directory / name)
        weight_map = {key: names[0] for key in first} | {key: names[1] for key in second}
        (directory / f"{stem}.{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    else:
        save(STATE, directory / f"{stem}.{suffix}")


def assert_is_state(tensors):
    assert set(tensors) == set(STATE)
    for name, expected in STATE.items():
        array = tensors[name]
        assert tensors.safetensors_dtype(name) == DTYPES[name]
        assert tensors.shape(name) == array.shape == tuple(expected.shape)
        if expected.dtype == torch.bfloat16:
            assert array.dtype == ml_dtypes.bfloat16
            array, expected = array.astype(np.float32), expected.float()
        np.testing.assert_array_equal(array, expected.numpy())
        assert array.dtype == expected.numpy().dtype


@pytest.mark.parametrize("form", ["safetensors", "sharded safetensors", "bin", "sharded bin"])
def test_every_form_gives_what_was_saved(tmp_path, form):
    write_state(tmp_path, form)
    with open_tensors_in_directory(tmp_path) as tensors:
        assert_is_state(tensors)


def test_safetensors_come_before_pickles(tmp_path):
    torch.save({"old": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    write_state(tmp_path, "sharded safetensors")
    assert set(open_tensors_in_directory(tmp_path)) == set(STATE)
    safetensors.numpy.save_file({"whole": np.zeros(1)}, tmp_path / "model.safetensors")
    assert set(open_tensors_in_directory(tmp_path)) == {"whole"}


@pytest.mark.parametrize("key", ["model", "state_dict"])
def test_wrapped_state_dicts(tmp_path, key):
    torch.save({"epoch": 3, key: STATE, "optimizer": [{"step": 1}]}, tmp_path / "checkpoint.pt")
    assert_is_state(open_tensors_in_file(tmp_path / "checkpoint.pt"))


def test_a_pickle_without_named_tensors_says_what_it_holds(tmp_path):
    torch.save({"epoch": 3, "rows": [1, 2]}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"'epoch', 'rows'.*dict of named tensors"):
        open_tensors_in_directory(tmp_path)


def test_no_weights_names_what_was_looked_for_and_found(tmp_path):
    (tmp_path / "rust_model.ot").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"model\.safetensors, .*pytorch_model\.bin.*rust_model\.ot"):
        open_tensors_in_directory(tmp_path)
    with pytest.raises(CheckpointError, match="empty or missing"):
        open_tensors_in_directory(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n", "git lfs pull"),
        (b"\n<!DOCTYPE html><html>Not found</html>", "web page"),
        (b'{"error": "Repository not found"}', "JSON"),
    ],
)
def test_other_content_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        open_tensors_in_directory(tmp_path)


def safetensors_bytes(header, data=b"\0" * 16, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(4,), offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "content",
    [
        safetensors_bytes({"a": entry()}, length=1 << 62),
        safetensors_bytes({"a": entry()}, length=200_000_000),
        safetensors_bytes({"a": entry()}, data=b"\0" * 15),
        safetensors_bytes({"a": entry()}, data=b"\0" * 17),
        safetensors_bytes({"a": entry(offsets=(0, 1 << 50))}),
        safetensors_bytes({"a": entry(offsets=(4, 0))}),
        safetensors_bytes({"a": entry(shape=(5,))}),
        safetensors_bytes({"a": entry(shape=(1 << 62, 1 << 62))}),
        safetensors_bytes({"a": entry(shape=(-4,))}),
        safetensors_bytes({"a": entry(), "b": entry()}),
        safetensors_bytes({"a": entry(shape=(2,), offsets=(0, 8)), "b": entry(shape=(3,), offsets=(4, 16))}),
        safetensors_bytes({"a": entry(dtype="F31")}),
        safetensors_bytes(b"[1, 2]"),
        safetensors_bytes(b"[" * 5000),
        safetensors_bytes(b'{"a": {'),
        b"\x01\x02\x03",
    ],
)
def test_damaged_safetensors_are_one_clear_error(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        open_tensors_in_directory(tmp_path)


def test_safetensors_cut_anywhere(tmp_path):
    write_state(tmp_path, "safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    for length in range(0, len(whole), 97):
        (tmp_path / "model.safetensors").write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            open_tensors_in_directory(tmp_path)


def test_a_type_that_numpy_lacks(tmp_path):
    safetensors.torch.save_file({"tiny": torch.zeros(4).to(torch.float8_e4m3fn)}, tmp_path / "model.safetensors")
    tensors = open_tensors_in_directory(tmp_path)
    with pytest.raises(CheckpointError, match="tiny has type F8_E4M3"):
        tensors["tiny"]


@pytest.mark.parametrize(
    "shard", ["../evil.safetensors", "/etc/passwd", "sub/x.bin", "C:\\x", "..", "", 3, None, "a\0b"]
)
def test_an_index_cannot_leave_the_directory(tmp_path, shard):
    (tmp_path / "model").mkdir()
    safetensors.numpy.save_file({"a": np.zeros(1)}, tmp_path / "evil.safetensors")
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(CheckpointError, match="plain file name"):
        open_tensors_in_directory(tmp_path / "model")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', "[" * 100_000, "\x80"])
def test_a_damaged_index(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"index\.json"):
        open_tensors_in_directory(tmp_path)


def test_shards_must_exist_and_hold_what_the_index_says(tmp_path):
    write_state(tmp_path, "sharded safetensors")
    index = tmp_path / "model.safetensors.index.json"
    text = index.read_text()
    swapped = json.loads(text)
    swapped["weight_map"]["half"] = "model-00002-of-00002.safetensors"
    index.write_text(json.dumps(swapped))
    with pytest.raises(CheckpointError, match=r"00002-of-00002\.safetensors holds half, but it does not"):
        open_tensors_in_directory(tmp_path)
    index.write_text(text)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"missing: model-00002"):
        open_tensors_in_directory(tmp_path)
