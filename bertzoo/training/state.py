"""The state of an unfinished run on disk: `training_state/`, arrays and notes, written as a whole or not at all."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import save_tensors

FOLDER = "training_state"


def write_state(folder: Path, arrays: Mapping[str, np.ndarray], notes: dict[str, Any]) -> None:
    """Writes arrays, and what else is to be known as JSON has it.

    Raises:
        CheckpointError: The disk is full or the folder can't be written; the old state is as it was.
    """
    tensors = partial(save_tensors, tensors=dict(arrays))
    write_preset(folder, {"state.safetensors": tensors, "state.json": (json.dumps(notes) + "\n").encode()})


def read_state(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and notes that `write_state` wrote.

    Raises:
        CheckpointError: They can't be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        notes = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return load_file(folder / "state.safetensors"), notes
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} can't be read: {error}. Delete it to start anew.") from error


def model_variables(model: keras.Model) -> list[keras.Variable]:
    """What a model holds besides its metrics: weights, and the counters that dropout draws from."""
    metrics = {id(variable) for variable in model.metrics_variables}
    return [variable for variable in model.variables if id(variable) not in metrics]
