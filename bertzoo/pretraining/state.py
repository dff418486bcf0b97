"""All that a run needs to go on as if it had not been stopped: weights, moments, counters, and notes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.saving import recover
from bertzoo.training.state import FOLDER, model_variables, read_state, write_state


def save_state(directory: str | Path, model: keras.Model, notes: dict[str, Any]) -> None:
    """Writes `directory/training_state`, all of it or nothing.

    Args:
        directory: The run's; made if need be.
        model: Compiled, its optimizer built.
        notes: What else is to be known, as JSON has it.

    Raises:
        CheckpointError: The disk is full or the folder can't be written; the old state is as it was.
    """
    arrays = {name: keras.ops.convert_to_numpy(variable) for name, variable in _variables(model)}
    write_state(Path(directory) / FOLDER, arrays, notes)


def load_state(directory: str | Path, model: keras.Model) -> dict[str, Any]:
    """Puts a state that `save_state` wrote back into a model of the same kind; -> its notes.

    Raises:
        CheckpointError: There is none, or it is of another model.
    """
    folder = Path(directory) / FOLDER
    recover(folder)
    if not (folder / "state.json").is_file():
        raise CheckpointError(f"{directory} holds no state of an unfinished run to resume.")
    stored, notes = read_state(folder)
    for name, variable in _variables(model):
        if name not in stored or stored[name].shape != tuple(variable.shape):
            raise CheckpointError(f"{folder} is the state of another model: it has no {name} {tuple(variable.shape)}.")
    for name, variable in _variables(model):
        variable.assign(stored[name])
    return notes


def remove_state(directory: str | Path) -> None:
    """Removes the state of a run that has come to its end."""
    shutil.rmtree(Path(directory) / FOLDER, ignore_errors=True)


def has_state(directory: str | Path) -> bool:
    """Whether a run in this directory was stopped before its end."""
    recover(Path(directory) / FOLDER)
    return (Path(directory) / FOLDER / "state.json").is_file()


def _variables(model: keras.Model) -> Iterator[tuple[str, keras.Variable]]:
    for number, variable in enumerate([*model_variables(model), *model.optimizer.variables]):
        yield f"{number}.{variable.path}", variable
