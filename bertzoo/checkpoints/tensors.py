"""The weights of a checkpoint directory: safetensors, PyTorch, TensorFlow or Flax files; writing safetensors."""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import ml_dtypes  # safetensors too finds bfloat16 in it
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.flax_msgpack import flax_name, read_flax_file
from bertzoo.checkpoints.lazy_tensors import LazyTensors, StoredTensor
from bertzoo.checkpoints.saving import Content, fsync
from bertzoo.checkpoints.tf_h5 import open_h5, tf_name
from bertzoo.checkpoints.torch_pickle import LazyTensor, read_torch_file

# In this order: where a directory holds several, the first is read, as transformers does.
SINGLE_FILE, TORCH_FILE, INT8_FILE = "model.safetensors", "pytorch_model.bin", "model.int8.safetensors"
TF_FILE, FLAX_FILE = "tf_model.h5", "flax_model.msgpack"  # of transformers before 5
_FORMS = (SINGLE_FILE, TORCH_FILE, TF_FILE, FLAX_FILE)
WEIGHT_FILES = (*(name for form in _FORMS for name in (form, f"{form}.index.json")), INT8_FILE)
# The suffix of a format's files -> a tensor's name, as in its index of shards, to Hugging Face's.
_INDEX_NAMES = {".h5": lambda name: tf_name(name.split("/")[1:]), ".msgpack": lambda name: flax_name(name.split("/"))}

STEP = "_step"  # the suffix of the tensor by which the int8 codes of a matrix's rows are multiplied, see int8_storage

DEFAULT_SHARD_BYTES = 5 * 1000**3

# Files that other loaders wrap: {"model": {name: tensor}} (fairseq), {"state_dict": {name: tensor}} (Lightning).
_WRAPPERS = ("state_dict", "model")

# The beginnings of files that downloads leave in the place of weights.
_OTHER_CONTENT = {
    b"version https://git-lfs": "a Git LFS pointer, not the weights: run `git lfs pull` or download it",
    b"<!doctype html": "a web page, not weights: the download gave an error or a login page",
    b"<html": "a web page, not weights: the download gave an error or a login page",
    b"<?xml": "a web page, not weights: the download gave an error or a login page",
    b'{"': "JSON text, not weights",
}


def to_finite_float32(tensor: np.ndarray, tensor_name: str) -> np.ndarray:
    """A tensor of weights as float32.

    Raises:
        CheckpointError: It holds integers, NaN or infinity.
    """
    if tensor.dtype.kind not in "f" and tensor.dtype != ml_dtypes.bfloat16:
        raise CheckpointError(f"{tensor_name} holds {tensor.dtype}, not floating-point numbers.")
    value = tensor.astype(np.float32)
    if not np.isfinite(value).all():
        raise CheckpointError(f"{tensor_name} holds numbers that are not finite (NaN or infinity).")
    return value


def open_tensors_in_directory(directory: Path) -> LazyTensors:
    """The weights in a directory, from the first of `WEIGHT_FILES` that it has; an index stands for its shards.

    Raises:
        CheckpointError: There are none, a file is damaged or something else, or an index names a file outside the
            directory, one that is missing, or a tensor that its shard does not hold.
    """
    for name in WEIGHT_FILES:
        path = directory / name
        if path.is_file():
            return _open_shards(path) if name.endswith(".index.json") else open_tensors_in_file(path)
    held = sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []
    raise CheckpointError(
        f"No weights in {directory}: looked for {', '.join(WEIGHT_FILES)}; "
        f"{'the directory holds ' + ', '.join(held[:20]) if held else 'the directory is empty or missing'}."
    )


def open_tensors_in_file(path: Path) -> LazyTensors:
    """The tensors of one file: safetensors, HDF5 of TensorFlow or msgpack of Flax if it has that suffix, else what
    `torch.save` wrote.

    Raises:
        CheckpointError: The file is damaged or something else.
    """
    _refuse_other_content(path)
    if path.suffix == ".safetensors":
        return _open_safetensors(path)
    if path.suffix == ".h5":
        return open_h5(path)
    if path.suffix == ".msgpack":
        return LazyTensors(read_flax_file(path))
    return LazyTensors(_flat(read_torch_file(path), path))


def save_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a safetensors file with the metadata {"format": "pt"} and waits until the disk has it.

    Arrays of `ml_dtypes.bfloat16` become BF16.

    Raises:
        CheckpointError: The file cannot be written.
    """
    # safetensors writes the memory as it lies, so a transposed view would be written in the wrong order.
    dense = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    try:
        path.touch()
        mode = path.stat().st_mode
        save_file(dense, path, metadata={"format": "pt"})
        path.chmod(mode)  # safetensors gives the file to its owner alone
        fsync(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} could not be written: {error}.") from error


def build_weight_files(
    tensors: Mapping[str, np.ndarray], max_shard_bytes: int = DEFAULT_SHARD_BYTES
) -> dict[str, Content]:
    """The weight files of a preset, for `write_preset`: `model.safetensors`, or shards of at most `max_shard_bytes`
    (a larger tensor has a shard to itself) with an index, named as Hugging Face names them.
    """
    shards: list[dict[str, np.ndarray]] = [{}]
    room = max_shard_bytes
    for name, tensor in tensors.items():
        if shards[-1] and tensor.nbytes > room:
            shards.append({})
            room = max_shard_bytes
        shards[-1][name] = tensor
        room -= tensor.nbytes
    if len(shards) == 1:
        return {SINGLE_FILE: partial(save_tensors, tensors=shards[0])}
    names = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {name: file for file, shard in zip(names, shards, strict=True) for name in shard},
    }
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    writers = {file: partial(save_tensors, tensors=shard) for file, shard in zip(names, shards, strict=True)}
    return {**writers, f"{SINGLE_FILE}.index.json": text.encode()}


def _open_safetensors(path: Path) -> LazyTensors:
    files = ExitStack()
    try:
        file = files.enter_context(safe_open(str(path), framework="numpy"))
        slices = {name: file.get_slice(name) for name in list(file.keys())}
    except SafetensorError as error:
        files.close()
        raise CheckpointError(
            f"{path} ({path.stat().st_size} bytes) is truncated, damaged or no safetensors file: {error}. "
            "Download it again."
        ) from error

    def read(name: str) -> np.ndarray:
        try:
            return file.get_tensor(name)
        except AttributeError as error:  # NumPy lacks the type: 8 and 4 bit floats
            raise CheckpointError(f"{path}: {name} has type {slices[name].get_dtype()}, which NumPy lacks.") from error
        except SafetensorError as error:
            raise CheckpointError(f"{path}: {name} cannot be read: {error}.") from error

    entries = {
        name: StoredTensor(tensor.get_dtype(), tuple(tensor.get_shape()), partial(read, name))
        for name, tensor in slices.items()
    }
    for name in [name for name in entries if name + STEP in entries]:
        codes, step = entries[name], entries.pop(name + STEP)
        if codes.dtype != "I8" or step.dtype != "F32" or step.shape != codes.shape[:1]:
            files.close()
            raise CheckpointError(
                f"{path}: {name} must be int8 codes, and {name + STEP} float32, one for each row. Received: "
                f"{codes.dtype} of shape {codes.shape} and {step.dtype} of shape {step.shape}."
            )
        entries[name] = StoredTensor("F32", codes.shape, partial(_decode, codes.read, step.read))
    return LazyTensors(entries, files)


def _decode(read_codes: Callable[[], np.ndarray], read_steps: Callable[[], np.ndarray]) -> np.ndarray:
    codes = read_codes().astype(np.float32)
    return codes * read_steps().reshape(-1, *[1] * (codes.ndim - 1))


def _open_shards(index: Path) -> LazyTensors:
    try:
        weight_map = dict(json.loads(index.read_bytes())["weight_map"].items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise CheckpointError(f"{index} is no index of shards: a JSON object with a weight_map is expected.") from error
    for shard in weight_map.values():
        # A name such as ../x or C:\x would read a file outside the directory.
        if not isinstance(shard, str) or not shard or shard.startswith(".") or set(shard) & set("/\\:\0"):
            raise CheckpointError(f"{index} names the shard {shard!r}; a plain file name is expected.")
    names = sorted(set(weight_map.values()))
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing or not names:
        listed = ", ".join(missing[:5]) or "all"
        raise CheckpointError(f"{index} names shards that are missing: {listed}. Download them again.")
    with ExitStack() as files:
        shards = {name: files.enter_context(open_tensors_in_file(index.parent / name)) for name in names}
        entries: dict[str, StoredTensor | LazyTensor] = {}
        for tensors in shards.values():  # a tensor that the index forgot shows in the load report
            entries.update(tensors._entries)
        to_hf_name = _INDEX_NAMES.get(Path(names[0]).suffix, str)
        for stored_name, shard in weight_map.items():
            name = to_hf_name(stored_name)
            if name not in shards[shard]:
                raise CheckpointError(f"{index} says that {shard} holds {name}, but it does not: they do not match.")
            entries[name] = shards[shard]._entries[name]
        return LazyTensors(entries, files.pop_all())


def _flat(structure: object, path: Path) -> dict[str, LazyTensor]:
    """The named tensors of a state dict, bare or wrapped; other values, such as epochs, are left out."""
    candidates = [structure]
    if isinstance(structure, dict):
        candidates += [structure[key] for key in _WRAPPERS if key in structure]
    for candidate in candidates:
        if isinstance(candidate, dict):
            tensors = {key: value for key, value in candidate.items() if isinstance(value, LazyTensor)}
            if tensors and all(isinstance(key, str) for key in tensors):
                return tensors
    kind = type(structure).__name__
    keys = f" with the keys {[str(key)[:40] for key in list(structure)[:10]]}" if isinstance(structure, dict) else ""
    raise CheckpointError(
        f"{path} holds a {kind}{keys}; a dict of named tensors is expected, bare or under one of {_WRAPPERS}."
    )


def _refuse_other_content(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(256).lstrip().lower()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    for beginning, content in _OTHER_CONTENT.items():
        if start.startswith(beginning):
            raise CheckpointError(f"{path} is {content}.")
    if not start:
        raise CheckpointError(f"{path} is empty; download it again.")
