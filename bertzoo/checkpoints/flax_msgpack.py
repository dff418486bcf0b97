"""The files of transformers' Flax classes, `flax_model.msgpack`: nested maps with arrays as an extension type.

Flax is not needed, and nothing in the file runs. The arrays are in memory once the file is open.
"""

import math
import mmap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.lazy_tensors import StoredTensor

ARRAY = 1  # the extension type: (shape, type, bytes)
# No map of a model has more keys. Arrays are shapes alone; msgpack takes memory for the lengths that a file declares.
LIMITS = {"max_map_len": 100_000, "max_array_len": 32, "max_str_len": 10_000}
MAX_DEPTH = 32
_ENDINGS = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
_DTYPES = {
    "float32": (np.dtype("<f4"), "F32"),
    "float16": (np.dtype("<f2"), "F16"),
    "float64": (np.dtype("<f8"), "F64"),
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), "BF16"),
    "int32": (np.dtype("<i4"), "I32"),
    "int64": (np.dtype("<i8"), "I64"),
}


class _Array(NamedTuple):
    """An array of the file: its values, and safetensors' name of its type."""

    values: np.ndarray
    dtype: str


def flax_name(parts: Sequence[str]) -> str:
    """Hugging Face's name of a tensor, from the keys that lead to it."""
    return ".".join([*parts[:-1], _ENDINGS.get(parts[-1], parts[-1])])


def read_flax_file(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file under Hugging Face's names, kernels transposed to (out, in).

    Raises:
        CheckpointError: The file is damaged, or holds other things than named arrays.
    """
    import msgpack

    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            tree = msgpack.unpackb(content, ext_hook=_read_array, raw=False, strict_map_key=True, **LIMITS)
    except (ValueError, TypeError, OSError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise CheckpointError(
            f"{path} ({path.stat().st_size} bytes) is truncated, damaged or no Flax file: {error}. Download it again."
        ) from error
    entries = {}
    for parts, array in _arrays(tree, (), path):
        values = array.values.T if parts[-1] == "kernel" else array.values
        name = flax_name(parts)
        if name in entries:
            raise CheckpointError(f"{path} holds {name[:200]} twice.")
        entries[name] = StoredTensor(array.dtype, values.shape, partial(np.asarray, values))
    return entries


def _read_array(code: int, data: bytes) -> _Array:
    """An extension type's value; raises ValueError where it is no array."""
    import msgpack

    if code != ARRAY:
        raise ValueError(f"it has values of the extension type {code}; arrays are expected")
    shape, dtype_name, buffer = msgpack.unpackb(data, raw=True, max_array_len=32)
    dtype, name = _DTYPES.get(dtype_name.decode(), (None, "")) if isinstance(dtype_name, bytes) else (None, "")
    if dtype is None:
        raise ValueError(f"it has an array of {dtype_name!r:.40}; numbers are expected")
    sizes_are_valid = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not sizes_are_valid or not isinstance(buffer, bytes) or math.prod(shape) * dtype.itemsize != len(buffer):
        raise ValueError(f"it has {len(buffer)} bytes of numbers for the shape {shape!r:.100}")
    return _Array(np.frombuffer(buffer, dtype).reshape(shape), name)


def _arrays(tree: Any, parts: tuple[str, ...], path: Path) -> Iterator[tuple[tuple[str, ...], _Array]]:
    """The arrays of nested maps, each with the keys that lead to it."""
    if isinstance(tree, _Array) and parts:
        yield parts, tree
    elif not isinstance(tree, Mapping) or len(parts) > MAX_DEPTH:
        raise CheckpointError(
            f"{path} holds a {type(tree).__name__} at {'.'.join(map(str, parts))[:200]!r}; arrays in at most "
            f"{MAX_DEPTH} maps are expected."
        )
    elif "__msgpack_chunked_array__" in tree and parts:
        yield parts, _joined(tree, path)
    else:
        for key, value in tree.items():
            yield from _arrays(value, (*parts, str(key)), path)


def _joined(tree: Mapping[str, Any], path: Path) -> _Array:
    """An array of more than a gigabyte, which Flax writes as a map of flat parts."""
    maps = [tree.get(key) for key in ("chunks", "shape")]
    parts, shape = (list(found.values()) if isinstance(found, Mapping) else [] for found in maps)
    if not parts or not all(isinstance(part, _Array) and part.dtype == parts[0].dtype for part in parts):
        raise CheckpointError(f"{path} has an array in parts that are no arrays of one type.")
    values = np.concatenate([part.values.ravel() for part in parts])
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) != values.size:
        raise CheckpointError(f"{path} has an array in parts of {values.size} numbers for the shape {shape!r:.100}.")
    return _Array(values.reshape(shape), parts[0].dtype)
