"""Reads `pytorch_model.bin` without PyTorch and without calling anything that the file names.

Two containers: the zip archive of PyTorch 1.6 and later (`archive/data.pkl`, one uncompressed member per storage) and
the older stream (pickles of a magic number, a version, the machine, the object, its storage keys; then the storages).
Their pickles go through `pickle.Unpickler` with an allow-list, whose entries are functions and classes of this module.
"""

import math
import os
import pickle
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TypeGuard

import ml_dtypes
import numpy as np

from bertzoo.checkpoints.errors import CheckpointError

MAGIC_NUMBER, STREAM_VERSION = 0x1950A86A20F9469CFC6C, 1001
# A checkpoint's pickle holds names and small settings: 60 kB for BERT-large. These limits bound the time and the memory
# that a hostile file can take; tuples also bound how deep the C function recurses that hashes one.
MAX_PICKLE_BYTES = 1 << 24
MAX_TUPLES = 30_000
MAX_INTEGER = 1 << 64
MAX_DIMENSIONS = 32


class _Sealed:
    """An object that a pickle may pass on but not change."""

    def __setstate__(self, state: object) -> None:
        raise CheckpointError("its pickle sets attributes of a tensor, a storage or a function")


class _File:
    """The file that lazy tensors read from: reopened for each read, and refused if it is no longer the same."""

    def __init__(self, path: Path):
        self.path, self.status = path, path.stat()
        self.size = self.status.st_size

    def read(self, start: int, size: int, crc: int | None = None) -> bytearray:
        """`size` bytes from `start` on, compared with a checksum where the container has one."""
        data = bytearray(size)
        with self.path.open("rb") as file:
            now = os.fstat(file.fileno())
            if any(getattr(now, key) != getattr(self.status, key) for key in ("st_ino", "st_size", "st_mtime_ns")):
                raise CheckpointError(f"{self.path} was changed while it was being read; load it again.")
            file.seek(start)
            if file.readinto(data) != size:
                raise CheckpointError(f"{self.path} ends before byte {start + size}; download it again.")
        if crc is not None and zlib.crc32(data) != crc:
            raise CheckpointError(
                f"{self.path} is damaged: bytes from {start} on do not match their checksum; download it again."
            )
        return data


@dataclass(frozen=True)
class _StorageType(_Sealed):
    """A `torch.*Storage` class: its name in safetensors and its NumPy type."""

    name: str
    numpy: np.dtype


@dataclass(eq=False)
class _Storage(_Sealed):
    """A run of numbers in the file, shared by the tensors that are views of it; `start` and `crc` say where."""

    file: _File
    type: _StorageType
    count: int
    start: int = 0
    crc: int | None = None

    @property
    def size(self) -> int:
        return self.count * self.type.numpy.itemsize

    def read(self) -> np.ndarray:
        data = self.file.read(self.start, self.size, self.crc)
        if self.type.numpy == np.bool_:  # a byte other than 0 and 1 is no NumPy bool
            return np.frombuffer(data, np.uint8) != 0
        return np.frombuffer(data, self.type.numpy)


@dataclass(eq=False, repr=False)
class LazyTensor(_Sealed):
    """A tensor of the file, read on demand: `shape`, `dtype` (safetensors' name) and `read()`."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = (self.offset, *self.shape, *self.strides)
        if len(self.shape) != len(self.strides) or len(self.shape) > MAX_DIMENSIONS or not all(map(_is_size, numbers)):
            raise CheckpointError("a tensor's shape, strides or offset are not sizes")
        extent = 1 + sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        size = math.prod(size for size in self.shape if size) * self.storage.type.numpy.itemsize
        if size > self.storage.file.size or (0 not in self.shape and self.offset + extent > self.storage.count):
            raise CheckpointError(
                f"a tensor of shape {self.shape} reaches beyond its storage of {self.storage.count}, or beyond the file"
            )

    @property
    def dtype(self) -> str:
        return self.storage.type.name

    def __repr__(self) -> str:
        return f"LazyTensor({self.dtype}, {self.shape})"

    def read(self) -> np.ndarray:
        """The tensor's numbers, C-contiguous; bf16 as `ml_dtypes.bfloat16`."""
        if 0 in self.shape:
            return np.empty(self.shape, self.storage.type.numpy)
        numbers = self.storage.read()[self.offset :]
        strides = [step * numbers.itemsize for step in self.strides]
        return np.ascontiguousarray(np.lib.stride_tricks.as_strided(numbers, self.shape, strides)).reshape(self.shape)


class _Function(_Sealed):
    """A function of this module under the name that the file calls."""

    def __init__(self, function: Callable[..., object]):
        self._function = function

    def __call__(self, *arguments: object) -> object:
        return self._function(*arguments)


class _StateDict(dict):
    """An OrderedDict. A state_dict has version numbers (`_metadata`) as attributes, which are not used here."""

    def __setstate__(self, state: object) -> None:
        pass


class _Attributes(dict):
    """An object that holds settings (`argparse.Namespace`): its attributes by name."""

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.update(state)


@_Function
def _rebuild_tensor(storage: object, offset: int, shape: object, strides: object, *_: object) -> LazyTensor:
    if isinstance(storage, _Storage) and isinstance(shape, tuple) and isinstance(strides, tuple):
        return LazyTensor(storage, offset, shape, strides)
    raise CheckpointError("a tensor is described in an unknown way")


@_Function
def _rebuild_parameter(tensor: object, *_: object) -> LazyTensor:
    if isinstance(tensor, LazyTensor):
        return tensor
    raise CheckpointError("a parameter is described in an unknown way")


@_Function
def _rebuild_size(sizes: object) -> tuple[int, ...]:
    if isinstance(sizes, tuple) and all(map(_is_size, sizes)):
        return sizes
    raise CheckpointError("a torch.Size is described in an unknown way")


# All that a file may name, and the function or class of this module that is used instead.
ALLOWED_GLOBALS: Mapping[str, object] = {
    "collections.OrderedDict": _StateDict,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch.Size": _rebuild_size,
    "argparse.Namespace": _Attributes,  # fairseq's settings
    "torch.FloatStorage": _StorageType("F32", np.dtype("<f4")),
    "torch.DoubleStorage": _StorageType("F64", np.dtype("<f8")),
    "torch.HalfStorage": _StorageType("F16", np.dtype("<f2")),
    "torch.BFloat16Storage": _StorageType("BF16", np.dtype(ml_dtypes.bfloat16)),
    "torch.LongStorage": _StorageType("I64", np.dtype("<i8")),
    "torch.IntStorage": _StorageType("I32", np.dtype("<i4")),
    "torch.ShortStorage": _StorageType("I16", np.dtype("<i2")),
    "torch.CharStorage": _StorageType("I8", np.dtype("i1")),
    "torch.ByteStorage": _StorageType("U8", np.dtype("u1")),
    "torch.BoolStorage": _StorageType("BOOL", np.dtype("?")),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, file: _File):
        super().__init__(BytesIO(data), encoding="latin-1")
        self._file = file
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> object:
        full = f"{module}.{name}"
        if full not in ALLOWED_GLOBALS:
            raise CheckpointError(
                f"its pickle names {full[:200]!r}, which is not on the list of what a checkpoint may hold, so the file "
                "was refused; nothing of it was run"
            )
        return ALLOWED_GLOBALS[full]

    def persistent_load(self, identifier: object) -> _Storage:
        match identifier:
            case ("storage", _StorageType() as dtype, str() as key, _, int() as count, *view) if not any(view):
                storage = self.storages.setdefault(key, _Storage(self._file, dtype, count))
                is_same = (storage.type, storage.count) == (dtype, count)
                if not is_same or not _is_size(count) or storage.size > self._file.size:
                    raise CheckpointError(f"the storage {key[:100]!r} contradicts itself, or is larger than the file")
                return storage
            case ("module", *_):
                raise CheckpointError("it holds a whole pickled model; save its state_dict() instead")
        raise CheckpointError("a storage is described in an unknown way")


def read_torch_file(path: Path) -> object:
    """The nested dicts, lists and values of a file written by `torch.save`, with a `LazyTensor` for each tensor.

    Raises:
        CheckpointError: The file is damaged, is no such file, or names anything outside `ALLOWED_GLOBALS`.
    """
    try:
        file = _File(Path(path))
        start = file.read(0, min(4, file.size))
        if start == b"PK\x03\x04":
            return _read_zip(file)
        if start[:1] == b"\x80":
            return _read_stream(file)
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be read as a PyTorch file: {str(error).rstrip('.')}.") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    raise CheckpointError(f"{path} is no PyTorch file: it is neither a zip archive nor a stream of pickles.")


def _unpickle(stream: BytesIO, file: _File) -> tuple[object, dict[str, _Storage]]:
    """The next pickle of a stream, and the storages that it refers to, by key."""
    begin = stream.tell()
    try:
        _check_opcodes(stream)
        unpickler = _Unpickler(stream.getvalue()[begin : stream.tell()], file)
        return unpickler.load(), unpickler.storages
    except CheckpointError:
        raise
    except Exception as error:  # on damage pickle raises nearly every exception that Python has
        raise CheckpointError(f"its pickle is damaged: {error}") from error


def _check_opcodes(stream: BytesIO) -> None:
    """Refuses, before anything is built, what would exhaust the memory or the stack."""
    tuples = 0
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name in ("EMPTY_SET", "FROZENSET"):  # whose members can all have one hash
            raise CheckpointError("its pickle has sets, which no checkpoint needs")
        tuples += opcode.name.startswith("TUPLE")
        if tuples > MAX_TUPLES:
            raise CheckpointError(f"its pickle has more than {MAX_TUPLES} tuples")
        if type(argument) is int and abs(argument) > MAX_INTEGER and argument != MAGIC_NUMBER:
            raise CheckpointError("its pickle has an integer of more than 64 bits")
        if opcode.name.endswith("PUT") and argument not in range(stream.getbuffer().nbytes):
            raise CheckpointError("its pickle is damaged: it stores more values than it has bytes")


def _read_zip(file: _File) -> object:
    try:
        with zipfile.ZipFile(file.path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            is_double = len(members) < len(archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, struct.error, OverflowError, ValueError, EOFError) as error:
        raise CheckpointError(f"the archive is truncated or damaged ({error})") from error
    starts = {name: _start_of(member, file) for name, member in members.items()}
    if is_double or sum(member.file_size for member in members.values()) > file.size:
        raise CheckpointError("the archive holds a member twice, or members that overlap")

    def read(name: str) -> bytearray:
        return file.read(starts[name], members[name].file_size, members[name].CRC)

    pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise CheckpointError(f"the archive holds {len(pickles)} data.pkl where one is expected; is it TorchScript?")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}byteorder" in members and read(f"{root}byteorder") != b"little":
        raise CheckpointError("it was written on a big-endian machine; save it again on another")
    if members[pickles[0]].file_size > MAX_PICKLE_BYTES:
        raise CheckpointError(f"its pickle has more than {MAX_PICKLE_BYTES} bytes")
    structure, storages = _unpickle(BytesIO(read(pickles[0])), file)
    for key, storage in storages.items():
        name = f"{root}data/{key}"
        if name not in members or members[name].file_size != storage.size:
            raise CheckpointError(f"the storage {key[:100]!r} is missing or does not have {storage.size} bytes")
        storage.start, storage.crc = starts[name], members[name].CRC
    return structure


def _start_of(member: zipfile.ZipInfo, file: _File) -> int:
    """Where the bytes of a member begin."""
    name = repr(member.filename[:100])
    # torch.save never compresses, so a member that is compressed (a zip bomb is) was not written by it.
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size or member.flag_bits & 1:
        raise CheckpointError(f"the member {name} is compressed or encrypted; torch.save never does so")
    header = file.read(member.header_offset, 30)
    start = member.header_offset + 30 + sum(struct.unpack("<HH", header[26:]))
    if header[:4] != b"PK\x03\x04" or start + member.file_size > file.size:
        raise CheckpointError(f"the member {name} is not where the archive says")
    return start


def _read_stream(file: _File) -> object:
    stream = BytesIO(file.read(0, min(file.size, MAX_PICKLE_BYTES)))
    magic, version, machine = (_unpickle(stream, file)[0] for _ in range(3))
    if (magic, version) != (MAGIC_NUMBER, STREAM_VERSION):
        raise CheckpointError(f"it does not begin with PyTorch's magic number and version {STREAM_VERSION}")
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise CheckpointError("it was written on a big-endian machine; save it again on another")
    structure, storages = _unpickle(stream, file)
    keys, _ = _unpickle(stream, file)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or sorted(keys) != sorted(storages):
        raise CheckpointError("its list of storages is damaged")
    start = stream.tell()
    for key in keys:
        storage = storages[key]
        (count,) = struct.unpack("<q", file.read(start, 8))
        storage.start = start + 8
        start += 8 + storage.size
        if count != storage.count or start > file.size:
            raise CheckpointError(
                f"it is truncated or damaged: the storage {key[:99]!r} ({storage.size} bytes) is not whole"
            )
    return structure


def _is_size(number: object) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < 1 << 48
