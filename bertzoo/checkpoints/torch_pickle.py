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
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import NamedTuple, TypeGuard

import ml_dtypes
import numpy as np

from bertzoo.checkpoints.errors import CheckpointError

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
STREAM_VERSION = 1001
# A checkpoint's pickle holds names and small settings: 60 kB for BERT-large. These limits bound the time and the memory
# that a hostile file can take; tuples also bound how deep the C function recurses that hashes one.
MAX_PICKLE_BYTES = 1 << 24
MAX_TUPLES = 30_000
MAX_INTEGER = 1 << 64
MAX_DIMENSIONS = 32

_OPCODES = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT",
    "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "NONE", "NEWTRUE", "NEWFALSE", "EMPTY_TUPLE", "TUPLE", "TUPLE1",
    "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "PUT", "BINPUT",
    "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD",
    "PERSID", "BINPERSID",
})  # fmt: skip
_TUPLES = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3")
_SLOTS = ("PUT", "BINPUT", "LONG_BINPUT")


class _Sealed:
    """An object that a pickle may pass on but not change."""

    def __setstate__(self, state: object) -> None:
        raise CheckpointError("its pickle sets attributes of a tensor, a storage or a function")


@dataclass(frozen=True)
class StorageType(_Sealed):
    """A `torch.*Storage` class: its name in safetensors and its NumPy type."""

    name: str
    numpy: np.dtype


class _Span(NamedTuple):
    """Where a storage's bytes are in the file; crc is None where the container has no checksums."""

    start: int
    size: int
    crc: int | None


class _TorchFile:
    """The file that lazy tensors read from: reopened for each read, and refused if it is no longer the same."""

    def __init__(self, path: Path):
        self.path = path
        with path.open("rb") as file:
            self.identity = _identity(file)
        self.size = self.identity[1]

    def open(self) -> BufferedReader:
        file = self.path.open("rb")
        if _identity(file) != self.identity:
            file.close()
            raise CheckpointError(f"{self.path} was changed while it was being read; load it again.")
        return file

    def read(self, span: _Span) -> bytearray:
        data = bytearray(span.size)
        with self.open() as file:
            file.seek(span.start)
            if file.readinto(data) != span.size:
                raise CheckpointError(f"{self.path} ends before byte {span.start + span.size}; download it again.")
        if span.crc is not None and zlib.crc32(data) != span.crc:
            raise CheckpointError(
                f"{self.path} is damaged: bytes from {span.start} on do not match their checksum; download it again."
            )
        return data


@dataclass(eq=False)
class _Storage(_Sealed):
    """A run of numbers in the file, shared by the tensors that are views of it."""

    file: _TorchFile
    type: StorageType
    count: int
    span: _Span | None = None

    @property
    def size(self) -> int:
        return self.count * self.type.numpy.itemsize

    def read(self) -> np.ndarray:
        assert self.span is not None  # set when the container was read
        data = self.file.read(self.span)
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
        if 0 not in self.shape and self.offset + extent > self.storage.count:
            raise CheckpointError(f"a tensor of shape {self.shape} reaches beyond its storage of {self.storage.count}")
        if math.prod(size for size in self.shape if size) * self.storage.type.numpy.itemsize > self.storage.file.size:
            raise CheckpointError(f"a tensor of shape {self.shape} would be larger than the whole file")

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


class Attributes(dict):
    """An object that holds settings (`argparse.Namespace`): its attributes by name."""

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.update(state)


@_Function
def _rebuild_tensor(*description: object) -> LazyTensor:
    match description:
        case (_Storage() as storage, int() as offset, tuple() as shape, tuple() as strides, *_):
            return LazyTensor(storage, offset, shape, strides)
    raise CheckpointError("a tensor is described in an unknown way")


@_Function
def _rebuild_parameter(tensor: object, *_: object) -> LazyTensor:
    if not isinstance(tensor, LazyTensor):
        raise CheckpointError("a parameter is described in an unknown way")
    return tensor


@_Function
def _rebuild_size(sizes: object) -> tuple[int, ...]:
    if not (isinstance(sizes, tuple) and all(map(_is_size, sizes))):
        raise CheckpointError("a torch.Size is described in an unknown way")
    return sizes


_STORAGES = {
    "FloatStorage": StorageType("F32", np.dtype("<f4")),
    "DoubleStorage": StorageType("F64", np.dtype("<f8")),
    "HalfStorage": StorageType("F16", np.dtype("<f2")),
    "BFloat16Storage": StorageType("BF16", np.dtype(ml_dtypes.bfloat16)),
    "LongStorage": StorageType("I64", np.dtype("<i8")),
    "IntStorage": StorageType("I32", np.dtype("<i4")),
    "ShortStorage": StorageType("I16", np.dtype("<i2")),
    "CharStorage": StorageType("I8", np.dtype("i1")),
    "ByteStorage": StorageType("U8", np.dtype("u1")),
    "BoolStorage": StorageType("BOOL", np.dtype("?")),
}

# All that a file may name, and the function or class of this module that is used instead.
ALLOWED_GLOBALS: Mapping[str, object] = {
    "collections.OrderedDict": _StateDict,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch.Size": _rebuild_size,
    "argparse.Namespace": Attributes,  # fairseq's settings
    **{f"torch.{name}": storage for name, storage in _STORAGES.items()},
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, load_storage: Callable[[object], _Storage] | None):
        super().__init__(BytesIO(data), encoding="latin-1")
        self._load_storage = load_storage

    def find_class(self, module: str, name: str) -> object:
        full = f"{module}.{name}"
        if self._load_storage is None or full not in ALLOWED_GLOBALS:
            raise CheckpointError(
                f"its pickle names {full[:200]!r}, which is not on the list of what a checkpoint may hold, so the file "
                "was refused; nothing of it was run"
            )
        return ALLOWED_GLOBALS[full]

    def persistent_load(self, identifier: object) -> _Storage:
        if self._load_storage is None:
            raise CheckpointError("its pickle is damaged: it refers to a storage in its header")
        return self._load_storage(identifier)


def _unpickle(file: BytesIO, load_storage: Callable[[object], _Storage] | None = None) -> object:
    """The next pickle of a file. Without `load_storage` it may hold plain values alone."""
    start = file.tell()
    try:
        _check_opcodes(file, start, is_header=load_storage is None)
        data = file.getvalue()[start : file.tell()]
        return _Unpickler(data, load_storage).load()
    except CheckpointError:
        raise
    except Exception as error:  # on damage pickle raises nearly every exception that Python has
        raise CheckpointError(f"its pickle is damaged: {error}") from error


def _check_opcodes(file: BytesIO, start: int, is_header: bool) -> None:
    """Refuses, before anything is built, the opcodes that no checkpoint needs and what would exhaust the memory."""
    tuples, largest = 0, len(file.getvalue()) - start
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name not in _OPCODES:
            raise CheckpointError(f"its pickle uses the opcode {opcode.name}, which no plain checkpoint needs")
        tuples += opcode.name in _TUPLES
        if tuples > MAX_TUPLES:
            raise CheckpointError(f"its pickle has more than {MAX_TUPLES} tuples")
        if type(argument) is int and not is_header and abs(argument) > MAX_INTEGER:
            raise CheckpointError("its pickle has an integer of more than 64 bits")
        if opcode.name in _SLOTS and argument not in range(largest):
            raise CheckpointError("its pickle is damaged: it stores more values than it has bytes")


def read_torch_file(path: Path) -> object:
    """The nested dicts, lists and values of a file written by `torch.save`, with a `LazyTensor` for each tensor.

    Raises:
        CheckpointError: The file is damaged, is no such file, or names anything outside `ALLOWED_GLOBALS`.
    """
    try:
        file = _TorchFile(Path(path))
        with file.open() as raw:
            start = raw.read(4)
        if start == b"PK\x03\x04":
            return _read_zip(file)
        if start[:1] == b"\x80":
            return _read_stream(file)
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be read as a PyTorch file: {str(error).rstrip('.')}.") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    raise CheckpointError(f"{path} is no PyTorch file: it is neither a zip archive nor a stream of pickles.")


def _read_zip(file: _TorchFile) -> object:
    spans = _member_spans(file)
    pickles = [name for name in spans if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise CheckpointError(f"the archive holds {len(pickles)} data.pkl where one is expected; is it TorchScript?")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}byteorder" in spans and file.read(spans[f"{root}byteorder"]) != b"little":
        raise CheckpointError("it was written on a big-endian machine; save it again on another")
    if spans[pickles[0]].size > MAX_PICKLE_BYTES:
        raise CheckpointError(f"its pickle has more than {MAX_PICKLE_BYTES} bytes")
    storages: dict[str, _Storage] = {}

    def load_storage(identifier: object) -> _Storage:
        key, storage = _storage_of(identifier, file, storages)
        storage.span = spans.get(f"{root}data/{key}")
        if storage.span is None or storage.span.size != storage.size:
            found = "is missing" if storage.span is None else f"has {storage.span.size} bytes, not {storage.size}"
            raise CheckpointError(f"the storage {key[:100]!r} {found}")
        return storage

    return _unpickle(BytesIO(file.read(spans[pickles[0]])), load_storage)


def _member_spans(file: _TorchFile) -> dict[str, _Span]:
    spans: dict[str, _Span] = {}
    try:
        with file.open() as raw, zipfile.ZipFile(raw) as archive:
            for member in archive.infolist():
                if member.filename in spans:
                    raise CheckpointError(f"the archive holds {member.filename[:100]!r} twice")
                spans[member.filename] = _span_of(member, raw, file.size)
    except CheckpointError:
        raise
    except (zipfile.BadZipFile, NotImplementedError, struct.error, OverflowError, ValueError, EOFError) as error:
        raise CheckpointError(f"the archive is truncated or damaged ({error})") from error
    if sum(span.size for span in spans.values()) > file.size:
        raise CheckpointError("the archive's members overlap: together they are larger than the file")
    return spans


def _span_of(member: zipfile.ZipInfo, raw: BufferedReader, size: int) -> _Span:
    name = repr(member.filename[:100])
    # torch.save never compresses, so a member that is compressed (a zip bomb is) was not written by it.
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size or member.flag_bits & 1:
        raise CheckpointError(f"the member {name} is compressed or encrypted; torch.save never does so")
    raw.seek(member.header_offset)
    header = raw.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise CheckpointError(f"the member {name} is not where the archive says")
    start = member.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
    if start + member.file_size > size:
        raise CheckpointError(f"the member {name} reaches beyond the end of the file")
    return _Span(start, member.file_size, member.CRC)


def _read_stream(file: _TorchFile) -> object:
    storages: dict[str, _Storage] = {}
    with file.open() as raw:
        head = BytesIO(raw.read(MAX_PICKLE_BYTES))
    if _unpickle(head) != MAGIC_NUMBER:
        raise CheckpointError("it does not begin with PyTorch's magic number")
    if _unpickle(head) != STREAM_VERSION:
        raise CheckpointError(f"its version is not {STREAM_VERSION}")
    machine = _unpickle(head)
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise CheckpointError("it was written on a big-endian machine; save it again on another")
    structure = _unpickle(head, lambda key: _storage_of(key, file, storages)[1])
    keys = _unpickle(head)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or sorted(keys) != sorted(storages):
        raise CheckpointError("its list of storages is damaged")
    start = head.tell()
    for key in keys:
        storage = storages[key]
        (count,) = struct.unpack("<q", file.read(_Span(start, 8, None)))
        storage.span = _Span(start + 8, storage.size, None)
        start += 8 + storage.size
        if count != storage.count or start > file.size:
            raise CheckpointError(
                f"it is truncated or damaged: the storage {key[:99]!r} ({storage.size} bytes) is not whole"
            )
    return structure


def _storage_of(identifier: object, file: _TorchFile, storages: dict[str, _Storage]) -> tuple[str, _Storage]:
    match identifier:
        case ("storage", StorageType() as kind, str() as key, _, count, *view) if _is_size(count) and not any(view):
            storage = storages.setdefault(key, _Storage(file, kind, count))
            if (storage.type, storage.count) != (kind, count) or storage.size > file.size:
                raise CheckpointError(f"the storage {key[:100]!r} contradicts itself, or is larger than the file")
            return key, storage
        case ("module", *_):
            raise CheckpointError("it holds a whole pickled model; save its state_dict() instead")
    raise CheckpointError("a storage is described in an unknown way")


def _is_size(number: object) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < 1 << 48


def _identity(file: BufferedReader) -> tuple[int, int, int]:
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns
