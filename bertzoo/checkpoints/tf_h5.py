"""The files of transformers' TensorFlow classes, `tf_model.h5`: HDF5 with Keras's names of weights.

Neither TensorFlow nor anything in the file runs: h5py reads numbers, on demand. Links are refused, so that no other
file is opened, and so is what transformers never wrote, such as compressed numbers.
"""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.lazy_tensors import LazyTensors, StoredTensor

MAX_DEPTH, MAX_OBJECTS = 32, 200_000
ALBERT_BIAS = "predictions.decoder.bias"
_ENDINGS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}
_DTYPES = {"float32": "F32", "float16": "F16", "float64": "F64", "int32": "I32", "int64": "I64"}


def tf_name(parts: Sequence[str]) -> str:
    """Hugging Face's name of a weight, from the parts of Keras's without the model's own.

    `layer_._0` is an item of a list; of `mlm___cls` what precedes the underscores is Keras's name alone.
    """
    words = [word for part in parts for word in part.rpartition("___")[2].split("_._")]
    ending = re.sub(r":\d+$", "", words[-1]) if words else ""
    return ".".join([*words[:-1], _ENDINGS.get(ending, ending)])


def open_h5(path: Path) -> LazyTensors:
    """The tensors of a file under Hugging Face's names, kernels transposed to (out, in).

    Raises:
        CheckpointError: The file is damaged, has links, or holds what transformers does not write.
    """
    import h5py

    files = ExitStack()
    try:
        file = files.enter_context(h5py.File(path, "r"))
        # Keras's own files have groups of layers, and in these the model's name; shards have neither.
        skipped = 2 if "keras_version" in file.attrs else 0
        entries: dict[str, StoredTensor] = {}
        for parts, dataset in _datasets(file, path):
            name, tensor = tf_name(parts[skipped:]), _stored(dataset, parts[-1], path)
            # A table that several layers use is there once for each.
            if entries.setdefault(name, tensor).shape != tensor.shape or not name:
                raise CheckpointError(
                    f"{path} holds {'/'.join(parts)[:200]}, whose shape or name is not of one tensor."
                )
        # ALBERT's class has two biases, of which it adds the decoder's.
        if ALBERT_BIAS in entries:
            entries[ALBERT_BIAS.replace("decoder.", "")] = entries.pop(ALBERT_BIAS)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:  # h5py's, of all kinds
        files.close()
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{path} ({path.stat().st_size} bytes) is truncated, damaged or no HDF5 file: {error}. Download it again."
        ) from error
    return LazyTensors(entries, files)


def _datasets(file: Any, path: Path) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All datasets, each with the parts of its name."""
    import h5py

    groups: list[tuple[tuple[str, ...], Any]] = [((), file)]
    count = 0
    while groups:
        parts, group = groups.pop()
        for name in group:
            count += 1
            place = (*parts, name)
            if count > MAX_OBJECTS or len(place) > MAX_DEPTH:
                raise CheckpointError(f"{path} has more than {MAX_OBJECTS} groups, or groups {MAX_DEPTH} deep.")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise CheckpointError(f"{path} has a link at {'/'.join(place)[:200]}; weights are expected.")
            child = group[name]
            if isinstance(child, h5py.Group):
                groups.append((place, child))
            elif isinstance(child, h5py.Dataset):
                yield place, child
            else:
                raise CheckpointError(f"{path} holds a {type(child).__name__} at {'/'.join(place)[:200]}.")


def _stored(dataset: Any, stored_name: str, path: Path) -> StoredTensor:
    shape, transposed = dataset.shape, stored_name.partition(":")[0] == "kernel"
    if shape is None or dataset.dtype.kind not in "fiu":
        raise CheckpointError(f"{path}: {dataset.name[:200]} holds {dataset.dtype}, not numbers.")
    if dataset.chunks is not None or dataset.external or dataset.is_virtual:
        raise CheckpointError(
            f"{path}: {dataset.name[:200]} is compressed or in other files; plain numbers are expected."
        )
    if math.prod(size for size in shape if size) * dataset.dtype.itemsize > path.stat().st_size:
        raise CheckpointError(f"{path}: {dataset.name[:200]} of shape {shape} is larger than the file.")

    def read() -> np.ndarray:
        try:
            value = np.asarray(dataset[()])
        except (OSError, RuntimeError, LookupError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path}: {dataset.name[:200]} cannot be read: {error}.") from error
        return value.T if transposed else value

    dtype = _DTYPES.get(dataset.dtype.name, dataset.dtype.name)
    return StoredTensor(dtype, shape[::-1] if transposed else shape, read)
