"""Files of TensorFlow and Flax that are damaged, contradict themselves or are hostile: one clear error each."""

import json
import random
import shutil

import h5py
import msgpack
import numpy as np
import pytest
from old_checkpoints import unpack

import bertzoo as bz
from bertzoo.checkpoints import tf_h5
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.tensors import open_tensors_in_file

pytestmark = pytest.mark.once

TF, FLAX = "tf_model.h5", "flax_model.msgpack"
GROUP = "bert/tf_bert_model/bert"
QUERY = f"{GROUP}/encoder/layer_._0/attention/self/query"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("old"))


# ---- changes of a directory


def raw(name, change):
    return lambda directory: (directory / name).write_bytes(change((directory / name).read_bytes()))


def h5(change):
    """A change of the HDF5 file by h5py."""

    def spoil(directory):
        with h5py.File(directory / TF, "r+") as file:
            change(file)

    return spoil


def replaced(make, name=f"{QUERY}/bias:0"):
    """A dataset in place of another."""

    def change(file):
        del file[name]
        make(file, name)

    return h5(change)


def linked(kind):
    def change(file):
        del file[f"{QUERY}/bias:0"]
        key = f"{GROUP}/encoder/layer_._0/attention/self/key/bias:0"
        file[f"{QUERY}/bias:0"] = h5py.SoftLink(f"/{key}") if kind == "soft" else h5py.ExternalLink("other.h5", key)

    return h5(change)


def virtual(file, name):
    layout = h5py.VirtualLayout((8,), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (8,))
    file.create_virtual_dataset(name, layout)


def nested(file):
    group = file["bert"]
    for i in range(40):
        group = group.create_group(f"g{i}")


def cycle(file):
    file["bert/again"] = file["bert"]


def named_type(file):
    file["bert/kind"] = np.dtype("f4")


def setting(name, value):
    def change(file):
        file[name][...] = value

    return h5(change)


def index(**changes):
    """Shards whose index has another content."""

    def spoil(directory):
        for path in directory.iterdir():
            path.unlink()
        shutil.copytree(directory.parent / "shards", directory, dirs_exist_ok=True)
        path = next(directory.glob("*.index.json"))
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, **{key: change(content[key]) for key, change in changes.items()}}))

    return spoil


def other_shard(name):
    return index(weight_map=lambda found: {key: name for key in found})


def array(shape, dtype, data, code=1):
    return msgpack.ExtType(code, msgpack.packb((shape, dtype, data)))


def flax(change):
    """A change of the nested maps of the Flax file."""

    def spoil(directory):
        tree = msgpack.unpackb((directory / FLAX).read_bytes())
        (directory / FLAX).write_bytes(msgpack.packb(change(tree) or tree))

    return spoil


def bias(value):
    """Another value of a bias of 8 numbers."""
    return flax(lambda tree: tree["encoder"]["layer"]["0"]["attention"]["self"]["query"].update(bias=value))


def deep(tree):
    inner = tree["embeddings"]
    for i in range(40):
        inner[str(i)] = inner = {}


ZEROS = np.zeros(8, "float32").tobytes()
PARTS = {"__msgpack_chunked_array__": True, "shape": {"0": 8}, "chunks": {"0": array([4], "float32", ZEROS[:16])}}

CASES = {
    # The whole file.
    "h5 empty": ("TF", raw(TF, lambda data: b""), "is empty"),
    "h5 text": ("TF", raw(TF, lambda data: b"no weights at all"), "damaged or no HDF5 file"),
    "h5 page": ("TF", raw(TF, lambda data: b"<!DOCTYPE html><html></html>"), "a web page"),
    "h5 pointer": ("TF", raw(TF, lambda data: b"version https://git-lfs.github.com/spec/v1"), "git lfs pull"),
    "h5 half": ("TF", raw(TF, lambda data: data[: len(data) // 2]), "truncated"),
    "h5 short": ("TF", raw(TF, lambda data: data[:-1]), "truncated"),
    "h5 signature": ("TF", raw(TF, lambda data: b"\x88" + data[1:]), "no HDF5 file"),
    "h5 zeros": ("TF", raw(TF, lambda data: data[:200] + b"\0" * (len(data) - 200)), "damaged"),
    # What it leads to.
    "h5 soft link": ("TF", linked("soft"), "has a link at"),
    "h5 external link": ("TF", linked("external"), "has a link at"),
    "h5 external numbers": (
        "TF",
        replaced(lambda file, name: file.create_dataset(name, (8,), "f4", external=[("config.json", 0, 32)])),
        "in other files",
    ),
    "h5 virtual": ("TF", replaced(virtual), "in other files"),
    "h5 cycle": ("TF", h5(cycle), "groups 32 deep"),
    "h5 deep": ("TF", h5(nested), "groups 32 deep"),
    # Datasets.
    "h5 gzip bomb": (
        "TF",
        replaced(lambda file, name: file.create_dataset(name, (1 << 28,), "f4", compression="gzip")),
        "compressed",
    ),
    "h5 chunks": ("TF", replaced(lambda file, name: file.create_dataset(name, (8,), "f4", chunks=(2,))), "compressed"),
    "h5 unallocated": ("TF", replaced(lambda file, name: file.create_dataset(name, (1 << 40,), "f4")), "larger than"),
    "h5 text values": ("TF", replaced(lambda file, name: file.create_dataset(name, data=["a"] * 8)), "not numbers"),
    "h5 fixed text": (
        "TF",
        replaced(lambda file, name: file.create_dataset(name, data=np.array([b"ab"] * 8))),
        "not numbers",
    ),
    "h5 lists": (
        "TF",
        replaced(lambda file, name: file.create_dataset(name, (8,), h5py.vlen_dtype("f4"))),
        "not numbers",
    ),
    "h5 records": ("TF", replaced(lambda file, name: file.create_dataset(name, (8,), [("a", "f4")])), "not numbers"),
    "h5 references": (
        "TF",
        replaced(lambda file, name: file.create_dataset(name, (8,), h5py.ref_dtype)),
        "not numbers",
    ),
    "h5 nothing": (
        "TF",
        replaced(lambda file, name: file.create_dataset(name, data=h5py.Empty("f4"))),
        "not numbers",
    ),
    "h5 type": ("TF", h5(named_type), "holds a Datatype"),
    "h5 integers": ("TF", replaced(lambda file, name: file.create_dataset(name, data=np.ones(8, "i4"))), "holds int32"),
    "h5 shape": ("TF", replaced(lambda file, name: file.create_dataset(name, data=np.ones(9, "f4"))), r"shape \(9,\)"),
    "h5 axes": (
        "TF",
        replaced(lambda file, name: file.create_dataset(name, data=np.ones((8, 1), "f4"))),
        r"shape \(8, 1\)",
    ),
    "h5 NaN": ("TF", setting(f"{QUERY}/bias:0", np.nan), "not finite"),
    "h5 infinity": ("TF", setting(f"{QUERY}/kernel:0", np.inf), "not finite"),
    "h5 missing": ("TF", replaced(lambda file, name: None), "lacks 3 tensors"),
    "h5 two": (
        "TF",
        h5(lambda file: file.create_dataset("x/y/bert/encoder/layer_._0/attention/self/query/bias:0", (3,))),
        "not of one tensor",
    ),
    "h5 nameless": ("TF", h5(lambda file: file.create_dataset("bias:0", (3,), "f4")), "shape or name"),
    # Shards.
    "index above": ("TF", other_shard("../secret.h5"), "plain file name"),
    "index absolute": ("TF", other_shard("/etc/passwd"), "plain file name"),
    "index missing": ("TF", other_shard("tf_model-00009-of-00009.h5"), "shards that are missing"),
    "index number": ("TF", other_shard(3), "plain file name"),
    "index list": ("TF", index(weight_map=lambda found: [*found]), "no index of shards"),
    "index other": ("TF", index(weight_map=lambda found: {"a/b/c:0": "tf_model-00001-of-00004.h5"}), "does not"),
    "index nameless": ("TF", index(weight_map=lambda found: {"a": "tf_model-00001-of-00004.h5"}), "does not"),
    # msgpack: the whole file.
    "msgpack empty": ("Flax", raw(FLAX, lambda data: b""), "is empty"),
    "msgpack text": ("Flax", raw(FLAX, lambda data: b"no weights"), "no Flax file"),
    "msgpack half": ("Flax", raw(FLAX, lambda data: data[: len(data) // 2]), "truncated"),
    "msgpack longer": ("Flax", raw(FLAX, lambda data: data + b"\0"), "extra data"),
    "msgpack list": ("Flax", flax(lambda tree: [1, 2]), "holds a list"),
    "msgpack number": ("Flax", flax(lambda tree: 7), "holds a int"),
    "msgpack array alone": ("Flax", flax(lambda tree: array([8], "float32", ZEROS)), "holds a _Array"),
    # Declared lengths.
    "msgpack array bomb": ("Flax", raw(FLAX, lambda data: b"\xdd\xff\xff\xff\xff"), "exceeds max_array_len"),
    "msgpack map bomb": ("Flax", raw(FLAX, lambda data: b"\xdf\xff\xff\xff\xff"), "exceeds max_map_len"),
    "msgpack text bomb": ("Flax", raw(FLAX, lambda data: b"\xdb\xff\xff\xff\xff"), "incomplete input"),
    "msgpack bytes bomb": ("Flax", raw(FLAX, lambda data: b"\xc6\xff\xff\xff\xff"), "damaged"),
    "msgpack nested lists": ("Flax", raw(FLAX, lambda data: b"\x91" * 100_000 + b"\0"), "damaged"),
    "msgpack nested maps": ("Flax", raw(FLAX, lambda data: b"\x81\xa1a" * 100_000 + b"\0"), "damaged"),
    "msgpack deep": ("Flax", flax(deep), "at most 32 maps"),
    # Values.
    "msgpack key": ("Flax", flax(lambda tree: tree.update({3: tree["embeddings"]})), "damaged"),
    "msgpack key of bytes": ("Flax", raw(FLAX, lambda data: b"\x81\xa2\xff\xfe\xc0"), "damaged"),
    "msgpack text value": ("Flax", bias("zeros"), "holds a str at"),
    "msgpack null": ("Flax", bias(None), "holds a NoneType"),
    "msgpack scalar": ("Flax", bias(array([8], "float32", ZEROS, code=3)), "extension type 3"),
    "msgpack time": ("Flax", bias(msgpack.Timestamp(1)), "damaged|Timestamp"),
    "msgpack few bytes": ("Flax", bias(array([8], "float32", ZEROS[:-1])), "31 bytes of numbers"),
    "msgpack many rows": ("Flax", bias(array([1 << 60, 8], "float32", ZEROS)), "32 bytes of numbers"),
    "msgpack negative": ("Flax", bias(array([-8, -1], "float32", ZEROS)), "32 bytes of numbers"),
    "msgpack no size": ("Flax", bias(array([8.0], "float32", ZEROS)), "32 bytes of numbers"),
    "msgpack shape": ("Flax", bias(array([4, 2], "float32", ZEROS)), r"shape \(4, 2\)"),
    "msgpack objects": ("Flax", bias(array([4], "object", ZEROS)), "an array of b'object'"),
    "msgpack number for a type": ("Flax", bias(array([8], 2 * 10**9, ZEROS)), "an array of 2000000000"),
    "msgpack structure": ("Flax", bias(array([8], "f4,f4", ZEROS)), "an array of"),
    "msgpack no triple": ("Flax", bias(msgpack.ExtType(1, msgpack.packb([1]))), "damaged"),
    "msgpack no array": ("Flax", bias(msgpack.ExtType(1, b"\xc1")), "damaged"),
    "msgpack integers": ("Flax", bias(array([8], "int32", ZEROS)), "holds int32"),
    "msgpack NaN": ("Flax", bias(array([8], "float32", np.full(8, np.nan, "float32").tobytes())), "not finite"),
    "msgpack parts": ("Flax", bias(PARTS), r"parts of 4 numbers for the shape \[8\]"),
    "msgpack no parts": ("Flax", bias({**PARTS, "chunks": [1]}), "parts that are no arrays"),
    "msgpack parts of parts": ("Flax", bias({**PARTS, "chunks": {"0": {"0": 1}}}), "parts that are no arrays"),
    "msgpack part types": (
        "Flax",
        bias({**PARTS, "chunks": {"0": PARTS["chunks"]["0"], "1": array([4], "int32", ZEROS[:16])}}),
        "no arrays of one type",
    ),
    "msgpack missing": ("Flax", flax(lambda tree: {"embeddings": tree["embeddings"]}), "can't be used"),
    "msgpack two": (
        "Flax",
        flax(lambda tree: tree["embeddings"]["LayerNorm"].update(weight=tree["embeddings"]["LayerNorm"]["scale"])),
        "twice",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_clear_error(case, checkpoints, tmp_path):
    prefix, spoil, message = CASES[case]
    directory = tmp_path / "model"
    shutil.copytree(checkpoints / f"{prefix}BertModel", directory)
    shutil.copytree(checkpoints / f"{prefix}BertForMaskedLM-sharded", tmp_path / "shards")
    # What links would lead to is there, and would load.
    shutil.copy(checkpoints / "TFBertModel" / TF, directory / "other.h5")
    spoil(directory)
    with pytest.raises(CheckpointError, match=message) as error:
        bz.Encoder.from_preset(directory, verbose=False)
    assert str(directory) in str(error.value) and len(str(error.value)) < 2000


def test_a_number_of_groups_is_too_many(checkpoints, monkeypatch):
    monkeypatch.setattr(tf_h5, "MAX_OBJECTS", 20)
    with pytest.raises(CheckpointError, match="more than 20 groups"):
        open_tensors_in_file(checkpoints / "TFBertModel" / TF)


@pytest.mark.parametrize("name", [f"TFBertModel/{TF}", f"FlaxBertModel/{FLAX}"])
def test_whatever_bytes_change(name, checkpoints, tmp_path):
    """A file is read, or refused by a CheckpointError: 300 changes of 1 to 16 bytes, half of them in its head."""
    data, draw, refused = (checkpoints / name).read_bytes(), random.Random(0), 0
    path = tmp_path / name.split("/")[1]
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(draw.choice([1, 2, 4, 16])):
            changed[draw.randrange(min(len(data), draw.choice([2000, len(data)])))] = draw.choice([0, 127, 128, 255])
        path.write_bytes(changed)
        try:
            with open_tensors_in_file(path) as tensors:
                for tensor in tensors.values():
                    assert isinstance(tensor, np.ndarray)
        except CheckpointError:
            refused += 1
    assert 50 < refused < 300
