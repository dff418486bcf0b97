"""Reads `pytorch_model.bin` without PyTorch and without running anything that the file holds.

Two containers: the zip archive of PyTorch 1.6 and later (`archive/data.pkl`, one uncompressed member per storage) and
the older stream (pickles of a magic number, a version, the machine, the object, its storage keys; then the storages).
Every size that the file declares is compared with the file's own before anything is allocated.
"""

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.pickle_machine import Attributes, BoundedStream, Rebuild, read_pickle

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
STREAM_VERSION = 1001
MOST_DIMENSIONS = 32
_CHUNK = 1 << 22


@dataclass(frozen=True)
class StorageType:
    """A `torch.*Storage` class: its name in safetensors and its NumPy type."""

    name: str
    numpy: np.dtype


class _Place(NamedTuple):
    """Where a storage's bytes lie in the file; crc is None where the container has no checksums."""

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

    def open(self) -> BinaryIO:
        file = self.path.open("rb")
        if _identity(file) != self.identity:
            file.close()
            raise CheckpointError(f"{self.path} was changed while it was being read; load it again.")
        return file

    def read(self, start: int, size: int) -> bytearray:
        data = bytearray(size)
        with self.open() as file:
            file.seek(start)
            if file.readinto(data) != size:
                raise CheckpointError(f"{self.path} ends before byte {start + size}; download it again.")
        return data

    def check(self, place: _Place) -> None:
        """Compares a member's bytes with its checksum."""
        crc, left = 0, place.size
        with self.open() as file:
            file.seek(place.start)
            while left:
                chunk = file.read(min(left, _CHUNK))
                if not chunk:
                    break
                crc, left = zlib.crc32(chunk, crc), left - len(chunk)
        if crc != place.crc:
            raise CheckpointError(f"{self.path} is damaged: bytes from {place.start} on do not match their checksum.")


@dataclass(eq=False)
class _Storage:
    """A run of numbers in the file, shared by the tensors that are views of it."""

    file: _TorchFile
    type: StorageType
    count: int
    place: _Place | None = None
    checked: bool = field(default=False, init=False)

    @property
    def size(self) -> int:
        return self.count * self.type.numpy.itemsize

    def read(self, offset: int, count: int) -> np.ndarray:
        if self.place.crc is not None and not self.checked:
            self.file.check(self.place)
            self.checked = True
        width = self.type.numpy.itemsize
        data = self.file.read(self.place.start + offset * width, count * width)
        if self.type.numpy == np.bool_:  # a byte other than 0 and 1 is no NumPy bool
            return np.frombuffer(data, np.uint8) != 0
        return np.frombuffer(data, self.type.numpy)


@dataclass(eq=False, repr=False)
class LazyTensor:
    """A tensor of the file that is read when asked: `shape`, `dtype` (safetensors name) and `read()`."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> str:
        return self.storage.type.name

    def __repr__(self) -> str:
        return f"LazyTensor({self.dtype}, {self.shape})"

    def read(self) -> np.ndarray:
        """The tensor's numbers, C-contiguous; bf16 as `ml_dtypes.bfloat16`."""
        if 0 in self.shape:
            return np.empty(self.shape, self.storage.type.numpy)
        flat = self.storage.read(self.offset, self._extent())
        if self.strides == _dense_strides(self.shape):
            return flat.reshape(self.shape)
        strides = [step * flat.itemsize for step in self.strides]
        return np.array(np.lib.stride_tricks.as_strided(flat, self.shape, strides), order="C")

    def _extent(self) -> int:
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))

    def check(self) -> None:
        """Raises CheckpointError unless all lies inside the storage, and the whole is no larger than the file."""
        numbers = (self.offset, *self.shape, *self.strides)
        if len(self.shape) != len(self.strides) or len(self.shape) > MOST_DIMENSIONS or not all(map(_is_size, numbers)):
            raise CheckpointError("a tensor's shape, strides or offset are not sizes")
        if 0 not in self.shape and self.offset + self._extent() > self.storage.count:
            raise CheckpointError(f"a tensor of shape {self.shape} reaches beyond its storage of {self.storage.count}")
        if math.prod(size for size in self.shape if size) * self.storage.type.numpy.itemsize > self.storage.file.size:
            raise CheckpointError(f"a tensor of shape {self.shape} would be larger than the whole file")


def _rebuild_tensor(arguments: tuple) -> LazyTensor:
    match arguments:
        case (_Storage() as storage, offset, tuple() as shape, tuple() as strides, *_):
            tensor = LazyTensor(storage, offset, shape, strides)
            tensor.check()
            return tensor
    raise CheckpointError("a tensor is described in an unknown way")


def _rebuild_parameter(arguments: tuple) -> LazyTensor:
    match arguments:
        case (LazyTensor() as tensor, *_):
            return tensor
    raise CheckpointError("a parameter is described in an unknown way")


def _rebuild_dict(arguments: tuple) -> dict:
    match arguments:
        case ():
            return {}
        case (list() as items,) if all(isinstance(item, list | tuple) and len(item) == 2 for item in items):
            if all(isinstance(key, str) for key, _ in items):  # how Python 2 wrote it
                return dict(items)
    raise CheckpointError("an OrderedDict is described in an unknown way")


def _rebuild_size(arguments: tuple) -> tuple:
    match arguments:
        case (tuple() as sizes,) if all(map(_is_size, sizes)):
            return sizes
    raise CheckpointError("a torch.Size is described in an unknown way")


def _rebuild_settings(arguments: tuple) -> Attributes:
    if arguments:
        raise CheckpointError("an argparse.Namespace is described in an unknown way")
    return Attributes()


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

# The whole list of what a file may name. A further entry maps a global to a function of ours that takes the arguments
# as data (`Rebuild`), or to an inert object; never to the thing that is named.
ALLOWED_GLOBALS: Mapping[str, object] = {
    "collections.OrderedDict": Rebuild("OrderedDict", _rebuild_dict),
    "torch._utils._rebuild_tensor_v2": Rebuild("tensor", _rebuild_tensor),
    "torch._utils._rebuild_parameter": Rebuild("parameter", _rebuild_parameter),
    "torch.Size": Rebuild("Size", _rebuild_size),
    "argparse.Namespace": Rebuild("Namespace", _rebuild_settings),  # fairseq's settings
    **{f"torch.{name}": storage for name, storage in _STORAGES.items()},
}


def read_torch_file(path: Path) -> object:
    """The nested dicts, lists and values of a file written by `torch.save`, with a `LazyTensor` for each tensor.

    Raises CheckpointError where the file is damaged, is no such file, or names anything outside `ALLOWED_GLOBALS`.
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
    places = _zip_places(file)
    pickles = [name for name in places if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise CheckpointError(f"the archive holds {len(pickles)} data.pkl where one is expected; is it TorchScript?")
    root = pickles[0].removesuffix("data.pkl")

    def contents(name: str) -> bytearray:
        file.check(places[name])
        return file.read(places[name].start, places[name].size)

    if f"{root}byteorder" in places and contents(f"{root}byteorder") != b"little":
        raise CheckpointError("it was written on a big-endian machine; save it again on another")
    storages: dict[str, _Storage] = {}

    def persistent(identifier: object) -> _Storage:
        key, storage = _storage_of(identifier, file, storages)
        storage.place = places.get(f"{root}data/{key}")
        if storage.place is None or storage.place.size != storage.size:
            found = "is missing" if storage.place is None else f"has {storage.place.size} bytes, not {storage.size}"
            raise CheckpointError(f"the storage {key[:100]!r} {found}")
        return storage

    data = contents(pickles[0])
    return read_pickle(BoundedStream(BytesIO(data), len(data)), ALLOWED_GLOBALS, persistent)


def _zip_places(file: _TorchFile) -> dict[str, _Place]:
    places: dict[str, _Place] = {}
    try:
        with file.open() as raw, zipfile.ZipFile(raw) as archive:
            for member in archive.infolist():
                if member.filename in places:
                    raise CheckpointError(f"the archive holds {member.filename[:100]!r} twice")
                places[member.filename] = _place_of(member, raw, file.size)
    except (zipfile.BadZipFile, NotImplementedError, struct.error, OverflowError, ValueError, EOFError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"the archive is truncated or damaged ({error})") from error
    if sum(place.size for place in places.values()) > file.size:
        raise CheckpointError("the archive's members overlap: together they are larger than the file")
    return places


def _place_of(member: zipfile.ZipInfo, raw: BinaryIO, size: int) -> _Place:
    # torch.save never compresses, so a member that is compressed (a zip bomb is) was not written by it.
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size or member.flag_bits & 1:
        raise CheckpointError(
            f"the member {member.filename[:100]!r} is compressed or encrypted; torch.save never does so"
        )
    raw.seek(member.header_offset)
    header = raw.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise CheckpointError(f"the member {member.filename[:100]!r} is not where the archive says")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    start = member.header_offset + 30 + name_length + extra_length
    if start + member.file_size > size:
        raise CheckpointError(f"the member {member.filename[:100]!r} reaches beyond the end of the file")
    return _Place(start, member.file_size, member.CRC)


def _read_stream(file: _TorchFile) -> object:
    storages: dict[str, _Storage] = {}
    with file.open() as raw:
        stream = BoundedStream(raw, file.size)
        if read_pickle(stream, {}) != MAGIC_NUMBER:
            raise CheckpointError("it does not begin with PyTorch's magic number")
        if read_pickle(stream, {}) != STREAM_VERSION:
            raise CheckpointError(f"its version is not {STREAM_VERSION}")
        machine = read_pickle(stream, {})
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise CheckpointError("it was written on a big-endian machine; save it again on another")
        structure = read_pickle(stream, ALLOWED_GLOBALS, lambda key: _storage_of(key, file, storages)[1])
        keys = read_pickle(stream, {})
        _place_stream(stream, storages, keys, file.size)
    return structure


def _place_stream(stream: BoundedStream, storages: dict[str, _Storage], keys: object, size: int) -> None:
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or sorted(keys) != sorted(storages):
        raise CheckpointError("its list of storages is damaged")
    position = stream.tell()
    for key in keys:
        storage = storages[key]
        raw = storage.file.read(position, 8) if position + 8 <= size else b"\xff" * 8
        (count,) = struct.unpack("<q", raw)
        position += 8
        if count != storage.count or position + storage.size > size:
            raise CheckpointError(
                f"it is truncated or damaged: the storage {key[:99]!r} ({storage.size} bytes) is not whole"
            )
        storage.place = _Place(position, storage.size, None)
        position += storage.size


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


def _is_size(number: object) -> bool:
    return type(number) is int and 0 <= number < 1 << 48


def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()


def _identity(file: BinaryIO) -> tuple[int, int, int]:
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns
