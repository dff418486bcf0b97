"""The state of an unfinished run on disk: `training_state/`, arrays and notes, replaced as a whole."""

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.saving import recover, write_preset
from bertzoo.checkpoints.tensors import save_tensors

FOLDER = "training_state"


class TrainingState:
    """What a stopped run needs to go on: variables in named groups, other arrays, and notes.

    Attributes:
        notes: Plain values.
    """

    def __init__(self, folder: Path, arrays: Mapping[str, np.ndarray], notes: dict[str, Any]):
        self.folder, self._arrays, self.notes = folder, arrays, notes

    @classmethod
    def read(cls, directory: str | Path) -> "TrainingState | None":
        """The state in `directory/training_state`, None if there is none.

        Raises:
            CheckpointError: It can't be read.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        folder = Path(directory) / FOLDER
        recover(folder)
        if not folder.exists():
            return None
        try:
            notes = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            return cls(folder, load_file(folder / "state.safetensors"), notes)
        except (OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(f"{folder} can't be read: {error}. Delete it to start again.") from error

    def assign(self, group: str, variables: Sequence[keras.Variable]) -> None:
        """Assigns the stored values of a group to variables.

        Raises:
            CheckpointError: The variables are not those that were stored.
        """
        names = _names(group, variables)
        stored = {name for name in self._arrays if name.startswith(f"{group}.")}
        for name, variable in zip(names, variables):
            if name not in stored or self._arrays[name].shape != tuple(variable.shape):
                raise CheckpointError(
                    f"{self.folder} is the state of another model: it has no {name} {variable.shape}."
                )
        if len(stored) > len(names):
            extra = min(stored - set(names))
            raise CheckpointError(f"{self.folder} is the state of another model: this one has no {extra}.")
        for name, variable in zip(names, variables):
            variable.assign(self._arrays[name])

    def array(self, name: str) -> np.ndarray:
        """One of the other arrays."""
        return self._arrays[name]


def write_state(
    directory: str | Path,
    groups: Mapping[str, Sequence[keras.Variable]],
    notes: dict[str, Any],
    arrays: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Writes `directory/training_state`, all of it or nothing.

    Args:
        directory: The run's directory; made if need be.
        groups: Variables by group; see `model_groups`.
        notes: Plain values, as JSON has them.
        arrays: Other arrays by name.

    Raises:
        CheckpointError: The disk is full or the folder can't be written; the old state is left unchanged.
    """
    values = dict(arrays or {})
    for group, variables in groups.items():
        # Copies: on PyTorch the arrays would share the variables' memory.
        copies = [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]
        values.update(zip(_names(group, variables), copies))
    tensors = partial(save_tensors, tensors=values)
    content = {"state.safetensors": tensors, "state.json": (json.dumps(notes) + "\n").encode()}
    write_preset(Path(directory) / FOLDER, content)


def remove_state(directory: str | Path) -> None:
    """Removes the state of a finished run."""
    shutil.rmtree(Path(directory) / FOLDER, ignore_errors=True)


def model_groups(model: keras.Model) -> dict[str, list[keras.Variable]]:
    """The variables of a compiled model: `model` (weights, and the step that dropout draws from) and `optimizer`."""
    metrics = {id(variable) for variable in model.metrics_variables}
    own = [variable for variable in model.variables if id(variable) not in metrics]
    return {"model": own, "optimizer": model.optimizer.variables}


def _names(group: str, variables: Sequence[keras.Variable]) -> list[str]:
    return [f"{group}.{number}.{variable.path}" for number, variable in enumerate(variables)]
