"""int8 layers in a preset: codes and scales in `model.int8.safetensors` instead of `model.safetensors`.

transformers does not know this file and reports that there are no weights; from model.safetensors it would read the
codes as weights, or skip them and start with random ones.
"""

import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import keras
import numpy as np

from bertzoo._keras_hooks import sublayers
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.names import Entry
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import INT8_FILE, WEIGHT_FILES, Tensors, open_tensors, save_tensors, tensor_files

SCALE = "_scale"  # the suffix of the tensor by which codes are divided to get the weights


def quantized_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """The layers whose kernel is quantized."""
    return [layer for layer in sublayers(model) if getattr(layer, "quantization_mode", None)]


def scales_of(model: keras.Model) -> dict[int, keras.Variable]:
    """The id of an int8 kernel -> its scales, float32 (units,).

    Raises:
        CheckpointError: A layer is quantized in another way.
    """
    scales = {}
    for layer in quantized_layers(model):
        if layer.quantization_mode != "int8" or not isinstance(layer, keras.layers.Dense):
            raise CheckpointError(
                f"a preset holds int8 layers only. Received: {layer.path}, quantized as {layer.quantization_mode}. "
                "Save the model as a .keras file."
            )
        scales[id(layer.kernel)] = layer.kernel_scale
    return scales


def quantize_as_stored(
    model: keras.Model, entries: Iterable[Entry], tensors: Tensors, weights: Mapping[str, keras.Variable]
) -> None:
    """Quantizes the layers whose kernels the file holds as int8 codes."""
    layers = {id(layer.kernel): layer for layer in sublayers(model) if isinstance(layer, keras.layers.Dense)}
    for entry in entries:
        layer = layers.get(id(weights[entry.keras_name]))
        is_quantized = all(tensors.dtype(name) == "I8" for name in entry.hf_names)
        if is_quantized and layer is not None and layer.quantization_mode is None:
            layer.quantize("int8")


def read_scales(entry: Entry, codes: Iterable[np.ndarray], tensors: Tensors) -> np.ndarray:
    """The scales of one kernel's codes, float32 (units,).

    Raises:
        CheckpointError: A tensor is missing, of another type, or no scale for these codes.
    """
    scales = []
    for name, array in zip(entry.hf_names, codes):
        if name + SCALE not in tensors:
            raise CheckpointError(f"the file lacks {name}{SCALE}, the scale of the codes {name}.")
        scale = tensors[name + SCALE]
        is_scale = scale.shape == array.shape[:1] and np.isfinite(scale).all() and (scale > 0).all()
        if array.dtype != np.int8 or not is_scale:
            raise CheckpointError(f"{name} and {name}{SCALE} are no codes of int8 and positive scales, one per row.")
        scales.append(scale.astype(np.float32))
    return np.concatenate(scales)


def weight_files(tensors: dict[str, np.ndarray]) -> dict:
    """The weight files of a preset: model.int8.safetensors if any tensor holds codes, else model.safetensors."""
    if any(tensor.dtype == np.int8 for tensor in tensors.values()):
        return {INT8_FILE: partial(save_tensors, tensors=tensors)}
    return tensor_files(tensors)


def is_int8(directory: Path) -> bool:
    """Whether the weights in a directory are int8."""
    return next((name for name in WEIGHT_FILES if (directory / name).is_file()), None) == INT8_FILE


def dequantize(source: Path, target: Path) -> None:
    """Copies a preset, with float32 weights in place of codes.

    Raises:
        CheckpointError: The weights are not int8.
    """
    if not is_int8(source):
        raise CheckpointError(f"{source} has no {INT8_FILE}: its weights are not int8.")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(INT8_FILE))
    with open_tensors(source) as tensors:
        floats = {}
        for name in tensors:
            if tensors.dtype(name) == "I8":
                floats[name] = tensors[name].astype(np.float32) / tensors[name + SCALE][:, None]
            elif name.removesuffix(SCALE) == name or name.removesuffix(SCALE) not in tensors:
                floats[name] = tensors[name]
        write_preset(target, tensor_files(floats))
