import io
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from bertzoo.checkpoints import torch_pickle
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.torch_pickle import LazyTensor, read_torch_file

pytestmark = pytest.mark.once

FORMATS = pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "stream"])


def save(state, path, is_zip, **options):
    torch.save(state, path, _use_new_zipfile_serialization=is_zip, **options)
    return path


def assert_equal(tensor: LazyTensor, expected: torch.Tensor):
    array = tensor.read()
    assert tensor.shape == array.shape == tuple(expected.shape)
    if expected.dtype == torch.bfloat16:
        assert array.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(
            array.view(np.uint16), expected.contiguous().view(torch.int16).numpy().view(np.uint16)
        )
    else:
        np.testing.assert_array_equal(array, expected.detach().numpy(), strict=True)


@FORMATS
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
)
def test_types(tmp_path, is_zip, protocol, dtype):
    tensor = (
        (torch.arange(24) % 7 - (0 if dtype in ("uint8", "bool") else 3)).to(getattr(torch, dtype)).reshape(2, 3, 4)
    )
    path = save({"t": tensor}, tmp_path / "x.bin", is_zip, pickle_protocol=protocol)
    assert_equal(read_torch_file(path)["t"], tensor)


@FORMATS
def test_views_share_a_storage(tmp_path, is_zip):
    base = torch.arange(60.0).reshape(3, 4, 5)
    state = {
        "base": base,
        "transposed": base.transpose(0, 2),
        "sliced": base[1:, ::2, 1:4],
        "offset": base[2],
        "diagonal": base[0].as_strided((4,), (6,)),
        "expanded": base[0, 0].expand(4, 5),
        "scalar": base[1, 1, 1],
        "empty": base[:0],
    }
    loaded = read_torch_file(save(state, tmp_path / "x.bin", is_zip))
    for name, tensor in state.items():
        assert_equal(loaded[name], tensor)
    assert loaded["base"].storage is loaded["sliced"].storage


@FORMATS
def test_module_state_with_metadata_and_parameters(tmp_path, is_zip):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.BatchNorm1d(4))
    state = module.state_dict()
    loaded = read_torch_file(save(state, tmp_path / "x.bin", is_zip))
    assert list(loaded) == list(state)
    for name, tensor in state.items():
        assert_equal(loaded[name], tensor)
    parameters = dict(module.named_parameters())
    loaded = read_torch_file(save(parameters, tmp_path / "y.bin", is_zip))
    for name, tensor in parameters.items():
        assert_equal(loaded[name], tensor)


@FORMATS
def test_nested_values(tmp_path, is_zip):
    state = {
        "model": OrderedDict(w=torch.ones(2)),
        "steps": [1, 2.5, None, True, -(1 << 60), "é", ("a", ())],
        7: {"size": torch.Size([2, 3])},
    }
    loaded = read_torch_file(save(state, tmp_path / "x.bin", is_zip))
    assert loaded["steps"] == state["steps"]
    assert loaded[7] == {"size": (2, 3)}
    assert_equal(loaded["model"]["w"], torch.ones(2))


def test_an_ordered_dict_as_python_2_wrote_it(tmp_path):
    pairs = b"((lp0\n(lp1\nS'epoch'\naI3\naatR."
    path = stream_file(tmp_path, b"ccollections\nOrderedDict\n" + pairs)
    assert read_torch_file(path) == {"epoch": 3}


def test_torch_is_not_imported(tmp_path):
    path = save({"t": torch.arange(3.0)}, tmp_path / "x.bin", True)
    code = (
        "import sys, types, pathlib\n"
        "for name in ('bertzoo', 'bertzoo.checkpoints'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "    sys.modules[name].__path__ = [sys.argv[1] + '/' + name.replace('.', '/')]\n"
        "from bertzoo.checkpoints.torch_pickle import read_torch_file\n"
        "assert read_torch_file(pathlib.Path(sys.argv[2]))['t'].read().tolist() == [0, 1, 2]\n"
        "assert not {'torch', 'keras', 'tensorflow', 'jax'} & set(sys.modules)\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, root, path], check=True)


# What follows is hostile.


def dumps(value, protocol=2):
    return pickle.dumps(value, protocol=protocol)


MAGIC = dumps(0x1950A86A20F9469CFC6C) + dumps(1001) + dumps({"little_endian": True})


def stream_file(directory, body, keys=(), tail=b""):
    path = directory / "x.bin"
    path.write_bytes(MAGIC + body + dumps(list(keys)) + tail)
    return path


def zip_file(directory, body, members=None, compression=zipfile.ZIP_STORED):
    path = directory / "x.bin"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", body)
        for name, data in (members or {}).items():
            archive.writestr(name, data)
    return path


class Call:
    def __init__(self, function, *arguments):
        self.what = function, arguments

    def __reduce__(self):
        return self.what


CALLS = {
    "os.system": b"\x80\x02cos\nsystem\nX\x0e\x00\x00\x00touch executed\x85R.",
    "posix.system": dumps(Call(os.system, "touch executed")),
    "__builtin__.eval": dumps(Call(eval, "open('executed', 'w')")),
    "builtins.exec": dumps(Call(exec, "open('executed', 'w')"), 4),
    "builtins.getattr": b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.",
    "subprocess.Popen": dumps(Call(subprocess.Popen, ["touch", "executed"])),
    "numpy.load": b"cnumpy\nload\n(S'x'\ntR.",
    "torch.load": b"ctorch\nload\n(S'x'\ntR.",
    "torch.storage._load_from_bytes": b"ctorch.storage\n_load_from_bytes\n(S'x'\ntR.",
    "torch._utils._rebuild_tensor_v2.__globals__": b"\x80\x04\x8c\x0ctorch._utils"
    b"\x8c\x1e_rebuild_tensor_v2.__globals__\x93.",
    "torch.hub.FloatStorage": b"ctorch.hub\nFloatStorage\n.",
    "_io.open": dumps(Call(open, "executed", "w")),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("write", [stream_file, zip_file])
def test_a_call_is_refused_by_name_and_never_made(tmp_path, monkeypatch, name, write):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, CALLS[name])
    with pytest.raises(CheckpointError) as error:
        read_torch_file(path)
    assert name.removesuffix(".__globals__").rsplit(".", 1)[1] in str(error.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.bin"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"(S'touch executed'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'touch executed'\no.",  # OBJ
        b"\x82\x01.",  # EXT1
        b"ctorch\nFloatStorage\n)R.",  # calls what is no function
        b"ctorch\nFloatStorage\n)\x81.",
        b"ctorch\nFloatStorage\n}S'numpy'\nI1\nsb.",  # sets an attribute of an allowed object
        b"ccollections\nOrderedDict\n}S'build'\nI1\nsb.",
        b"ccollections\nOrderedDict\n(lp0\nR.",
        b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
        b"ctorch._utils\n_rebuild_parameter\n(I1\ntR.",
        b"ctorch\nSize\n((S'x'\ntt)R.",
        b"}" + b")" + b"\x85" * 200_000 + b"I1\ns.",  # a key that would be hashed 200,000 levels deep
        b"X\xff\xff\xff\x7fabc.",  # strings, bytes and numbers that are longer than the file
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
        b"\x8e\x00\x00\x00\x00\x00\x01\x00\x00abc.",
        b"\x96\x00\x00\x00\x00\x00\x01\x00\x00abc.",
        b"\x8b\xff\xff\xff\x7fabc.",
        b"I" + b"9" * 100_000 + b"\n.",
        b"N" + b"r\xff\xff\xff\xff" + b"j\xfe\xff\xff\xff.",  # memo slots
        b"\x8f.", b"(\x91.",  # sets, whose members can all have one hash
        b"t.", b"a.", b"s.", b"R.", b"b.", b".", b"Q.", b"(.", b"(Na.", b"]N\x86Rs.", b"\x95", b"",
        b"Pmodule\n.",
        dumps(("module",))[:-1] + b"Q.",
        dumps(("storage", "FloatStorage", "0", "cpu", 4))[:-1] + b"Q.",
    ],
)  # fmt: skip
@pytest.mark.parametrize("write", [stream_file, zip_file])
def test_hostile_pickles_are_refused(tmp_path, monkeypatch, body, write):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError):
        read_torch_file(write(tmp_path, body))
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.bin"]


def number(value):
    return b"\x8a\x0a" + value.to_bytes(10, "little", signed=True)


def tensor_body(count=4, offset=0, shape=(4,), strides=(1,), key=b"0"):
    """The pickle of one float32 tensor with any numbers in it."""
    sizes = [b"(" + b"".join(map(number, numbers)) + b"t" for numbers in (shape, strides)]
    storage = b"(S'storage'\nctorch\nFloatStorage\nS'" + key + b"'\nS'cpu'\n" + number(count) + b"tQ"
    body = b"(" + storage + number(offset) + sizes[0] + sizes[1] + b"\x89ccollections\nOrderedDict\n)Rt"
    return b"}S't'\nctorch._utils\n_rebuild_tensor_v2\n" + body + b"Rs."


def test_the_handmade_tensor_is_read(tmp_path):
    data = np.arange(4, dtype="<f4").tobytes()
    loaded = read_torch_file(zip_file(tmp_path, tensor_body(), {"archive/data/0": data}))
    assert loaded["t"].read().tolist() == [0, 1, 2, 3]
    loaded = read_torch_file(stream_file(tmp_path, tensor_body(), ["0"], struct.pack("<q", 4) + data))
    assert loaded["t"].read().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "numbers",
    [
        {"count": 1 << 40},
        {"count": 1 << 62},
        {"count": -1},
        {"count": 3},
        {"count": 5},
        {"offset": 1},
        {"offset": -1},
        {"shape": (5,)},
        {"shape": (-4,)},
        {"shape": (2, 2), "strides": (2,)},
        {"strides": (-1,)},
        {"strides": (1 << 40,)},
        {"shape": (1 << 40,), "strides": (0,)},  # a small storage seen 2**40 times
        {"shape": (1 << 24, 1 << 24), "strides": (0, 0)},
        {"shape": (0, 1 << 40), "strides": (1, 1)},
        {"shape": (1,) * 65, "strides": (1,) * 65},
        {"key": b"../../../etc/passwd"},
        {"key": b"/etc/passwd"},
        {"key": b"1"},
    ],
)
@pytest.mark.parametrize("is_zip", [True, False])
def test_sizes_are_checked_against_the_file(tmp_path, numbers, is_zip):
    data = bytes(16)
    if is_zip:
        path = zip_file(tmp_path, tensor_body(**numbers), {"archive/data/0": data})
    else:
        path = stream_file(tmp_path, tensor_body(**numbers), ["0"], struct.pack("<q", 4) + data)
    with pytest.raises(CheckpointError):
        read_torch_file(path)


@pytest.mark.parametrize("count", [-1, 5, 1 << 60])
def test_a_stream_storage_longer_than_the_file(tmp_path, count):
    path = stream_file(tmp_path, tensor_body(count=count), ["0"], struct.pack("<q", count) + bytes(16))
    with pytest.raises(CheckpointError):
        read_torch_file(path)


def test_a_zip_bomb_is_refused(tmp_path):
    path = zip_file(
        tmp_path, tensor_body(count=1 << 24), {"archive/data/0": bytes(1 << 26)}, compression=zipfile.ZIP_DEFLATED
    )
    assert path.stat().st_size < 1 << 18
    with pytest.raises(CheckpointError, match="compressed"):
        read_torch_file(path)


def test_members_that_overlap_or_are_double_are_refused(tmp_path):
    path = zip_file(tmp_path, tensor_body(count=1 << 10), {f"archive/data/{i}": bytes(1 << 12) for i in range(2)})
    raw = bytearray(path.read_bytes())
    first, second = raw.rfind(b"PK\x01\x02", 0, raw.rfind(b"PK\x01\x02")), raw.rfind(b"PK\x01\x02")
    raw[second + 42 : second + 46] = raw[first + 42 : first + 46]  # both at the same offset
    for start in (first, second):  # and each said to be larger than it is
        raw[start + 20 : start + 28] = struct.pack("<II", 1 << 13, 1 << 13)
    path.write_bytes(raw)
    with pytest.raises(CheckpointError):
        read_torch_file(path)
    with pytest.warns(UserWarning, match="Duplicate"):
        path = zip_file(tmp_path, tensor_body(), {"archive/data.pkl": b"N."})
    with pytest.raises(CheckpointError, match="twice"):
        read_torch_file(path)


def test_member_names_are_never_paths(tmp_path):
    members = {"archive/data/0": bytes(16), "../escaped": b"x", "/tmp/escaped": b"x", "archive/../../escaped": b"x"}
    (tmp_path / "inside").mkdir()
    loaded = read_torch_file(zip_file(tmp_path / "inside", tensor_body(), members))
    assert loaded["t"].read().tolist() == [0, 0, 0, 0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["inside"]


def state_bytes(is_zip):
    buffer = io.BytesIO()
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)).bfloat16()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1.5)
    save(module.state_dict(), buffer, is_zip)
    return buffer.getvalue(), {name: tensor.float().numpy() for name, tensor in module.state_dict().items()}


def read_all(path):
    return {name: tensor.read().astype(np.float32) for name, tensor in read_torch_file(path).items()}


@FORMATS
def test_files_cut_short_are_refused(tmp_path, is_zip):
    whole, _ = state_bytes(is_zip)
    path = tmp_path / "x.bin"
    for length in range(0, len(whole), max(1, len(whole) // 150)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_all(path)


@pytest.mark.slow
def test_flipped_bits_in_a_zip_are_refused_or_harmless(tmp_path):
    whole, expected = state_bytes(True)
    path = tmp_path / "x.bin"
    generator = random.Random(5)
    refused = 0
    for _ in range(600):
        raw = bytearray(whole)
        for _ in range(generator.choice([1, 1, 3])):
            raw[generator.randrange(len(raw))] ^= 1 << generator.randrange(8)
        path.write_bytes(raw)
        try:
            loaded = read_all(path)
        except CheckpointError:
            refused += 1
            continue
        assert set(loaded) == set(expected)
        for name, array in loaded.items():
            np.testing.assert_array_equal(array, expected[name])
    assert refused > 100


@pytest.mark.slow
def test_random_bytes_in_a_stream_are_refused_or_read(tmp_path):
    """A stream has no checksums: a changed byte may change a number or a name, as for PyTorch; nothing worse."""
    whole, expected = state_bytes(False)
    path = tmp_path / "x.bin"
    generator = random.Random(6)
    total = sum(array.size for array in expected.values())
    for _ in range(600):
        raw = bytearray(whole)
        raw[generator.randrange(len(raw))] = generator.randrange(256)
        path.write_bytes(raw)
        try:
            loaded = read_torch_file(path)
        except CheckpointError:
            continue
        tensors = (
            [value for value in loaded.values() if isinstance(value, LazyTensor)] if isinstance(loaded, dict) else []
        )
        assert sum(tensor.read().size for tensor in tensors) <= 4 * total


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80", b"\x80\x02", b"not a checkpoint", bytes(100)])
def test_what_is_no_torch_file(tmp_path, content):
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.bin"):
        read_torch_file(tmp_path / "x.bin")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_torch_file(tmp_path / "missing.bin")


def test_a_whole_pickled_model_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="Linear"):
        read_torch_file(save(torch.nn.Linear(2, 2), tmp_path / "x.bin", True))


def test_a_file_that_changes_under_the_reader(tmp_path):
    path = save({"t": torch.zeros(4)}, tmp_path / "x.bin", True)
    loaded = read_torch_file(path)
    save({"t": torch.ones(1000)}, path, True)
    with pytest.raises(CheckpointError, match="changed while"):
        loaded["t"].read()


@pytest.mark.slow
def test_keys_of_one_hash_are_refused(tmp_path):
    """Each of 50,000 would be compared with all before it: minutes for a small file."""
    keys = [i * (2**61 - 1) for i in range(50_000)]
    path = zip_file(tmp_path, pickle.dumps(dict.fromkeys(keys), 2), {})
    with pytest.raises(CheckpointError, match="an integer of more than 64 bits"):
        read_torch_file(path)


def test_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_pickle, "MAX_PICKLE_BYTES", 100)
    with pytest.raises(CheckpointError, match="more than 100 bytes"):
        read_torch_file(zip_file(tmp_path, dumps("x" * 200), {}))
    with pytest.raises(CheckpointError):
        read_torch_file(stream_file(tmp_path, dumps("x" * 200)))
    monkeypatch.setattr(torch_pickle, "MAX_TUPLES", 3)
    with pytest.raises(CheckpointError, match="more than 3 tuples"):
        read_torch_file(zip_file(tmp_path, dumps([(i,) for i in range(4)]), {}))


@pytest.mark.parametrize("name", torch_pickle.ALLOWED_GLOBALS)
def test_what_the_list_stands_for_cannot_be_changed(tmp_path, name):
    """State that is set on an object of this module, as attributes and as slots, would outlast the file."""
    module, _, attribute = name.rpartition(".")
    named = f"c{module}\n{attribute}\n".encode()
    for state in (b"}S'__doc__'\nS'x'\ns", b"(N}S'__doc__'\nS'x'\nst"):
        with pytest.raises(CheckpointError):
            read_torch_file(zip_file(tmp_path, named + state + b"b.", {}))
    assert torch_pickle.ALLOWED_GLOBALS[name].__doc__ != "x"


def test_a_checked_tensor_cannot_be_changed(tmp_path):
    body = tensor_body()[:-2] + b"}S'offset'\nI1000\nsbs."
    with pytest.raises(CheckpointError, match="sets attributes"):
        read_torch_file(zip_file(tmp_path, body, {"archive/data/0": bytes(16)}))
