"""Presets whose matrices are stored in 8 bits and loaded as floats: a quarter of float32's bytes.

A matrix `X` in such a file is int8 codes, and `X_step`, float32 (rows,), what the codes of each row are multiplied by.
Nothing is computed in 8 bits: that is `keras.Model.quantize`, whose layers are saved with `X_scale`.
"""

import shutil
from functools import partial
from pathlib import Path

import numpy as np

from bertzoo.checkpoints.saving import is_weight_file, write_preset
from bertzoo.checkpoints.tensors import (
    INT8_FILE,
    STEP,
    open_tensors_in_directory,
    save_tensors,
    to_finite_float32,
)

CODES = 127  # from -127 to 127


def store_in_int8(source_directory: Path, target_directory: Path) -> None:
    """Copies a preset, with its matrices in 8 bits.

    transformers and sentence-transformers do not read the result: load it and save it for them.

    Args:
        source_directory: A preset with float weights.
        target_directory: Where to; made if need be.

    Raises:
        CheckpointError: There are no weights, they are no floats, or the directory can't be written.
    """
    with open_tensors_in_directory(source_directory) as tensors:
        stored: dict[str, np.ndarray] = {}
        for name in tensors:
            value = to_finite_float32(tensors[name], f"tensor {name}")
            if value.ndim != 2:
                stored[name] = value
                continue
            step = np.maximum(np.abs(value).max(axis=1), 1e-30) / CODES
            stored |= {name: np.rint(value / step[:, None]).astype(np.int8), name + STEP: step.astype(np.float32)}
    if source_directory != target_directory:

        def ignored(folder: str, names: list[str]) -> list[str]:
            # Those of layers after the encoder are in folders of their own, and stay.
            return [name for name in names if is_weight_file(name)] if Path(folder) == source_directory else []

        shutil.copytree(source_directory, target_directory, ignore=ignored, dirs_exist_ok=True)
    write_preset(target_directory, {INT8_FILE: partial(save_tensors, tensors=stored)})
