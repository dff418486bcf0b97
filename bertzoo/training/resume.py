"""Resuming a killed run, so that it ends as if it had not been interrupted: its state on disk, and a callback for
`fit`."""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import build_metrics, set_initial_epoch
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.saving import recover_interrupted_save, write_preset
from bertzoo.checkpoints.tensors import save_tensors
from bertzoo.training.processes import is_writer, writer_first

FOLDER, NOTES, ARRAYS = "training_state", "state.json", "state.safetensors"
FORMAT = 2  # of the notes
ARRAY = "__array__"  # the key of a reference to an array


class TrainingState:
    """The state of an unfinished run, `directory/training_state`: a compiled model's variables, arrays, and notes.

    Args:
        folder: The directory of the state.
        notes: Values as JSON has them.
        arrays: Arrays by name.
    """

    def __init__(self, folder: Path, notes: dict[str, Any], arrays: Mapping[str, np.ndarray]):
        self.folder, self.notes, self.arrays = folder, notes, arrays

    @classmethod
    def read(cls, directory: str | Path) -> "TrainingState | None":
        """The state in a run's directory; None if there is none.

        Raises:
            CheckpointError: It can't be read.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        folder = Path(directory) / FOLDER
        recover_interrupted_save(folder)
        if not folder.exists():
            return None
        try:
            notes = json.loads((folder / NOTES).read_text(encoding="utf-8"))
            if notes.get("format") != FORMAT:
                raise ValueError("another version of bertzoo wrote it")
            return cls(folder, notes, load_file(folder / ARRAYS))
        except (OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(f"{folder} can't be read: {error}. Delete it to start again.") from error

    @classmethod
    def write(
        cls, directory: str | Path, model: keras.Model, notes: dict[str, Any], arrays: Mapping[str, np.ndarray] = {}
    ) -> None:
        """Writes the state of a run, all of it or nothing; of several processes, the first one does.

        Raises:
            CheckpointError: The disk is full or the folder can't be written; the old state is left unchanged.
        """
        if not is_writer():
            return
        # Copies: on PyTorch the arrays would share the variables' memory.
        variables = {name: np.array(keras.ops.convert_to_numpy(v)) for name, v in named_variables(model).items()}
        content = (json.dumps({"format": FORMAT, **notes}) + "\n").encode()
        tensors = partial(save_tensors, tensors={**arrays, **variables})
        write_preset(Path(directory) / FOLDER, {ARRAYS: tensors, NOTES: content})

    @staticmethod
    def remove(directory: str | Path) -> None:
        """Removes the state of a finished run; of several processes, the first one does."""
        if is_writer():
            shutil.rmtree(Path(directory) / FOLDER, ignore_errors=True)

    def restore(self, model: keras.Model, *groups: str) -> None:
        """Assigns the stored values to the variables of some groups; see `named_variables`.

        Raises:
            CheckpointError: The model's variables are not those that were stored.
        """
        variables = {name: v for name, v in named_variables(model).items() if name.startswith(groups)}
        shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
        stored = {name: array.shape for name, array in self.arrays.items() if name.startswith(groups)}
        differing = [name for name in {**shapes, **stored} if shapes.get(name) != stored.get(name)]
        if differing:
            name = differing[0]
            raise CheckpointError(
                f"{self.folder} is the state of another model: {name} has the shape {stored.get(name)} there, and "
                f"{shapes.get(name)} here."
            )
        for name, variable in variables.items():
            variable.assign(self.arrays[name])


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """The variables of a compiled model by names that begin with their group: `model` (the weights, and the step that
    dropout draws from), `optimizer` and `metric`."""
    metrics = {id(variable) for variable in model.metrics_variables}
    groups = {
        "model": [variable for variable in model.variables if id(variable) not in metrics],
        "optimizer": model.optimizer.variables,
        "metric": model.metrics_variables,
    }
    return {f"{group}.{i}.{v.path}": v for group, variables in groups.items() for i, v in enumerate(variables)}


class Resume(keras.callbacks.Callback):
    """Saves the state of a run to disk, and resumes it when the same `fit` is called again.

        resume = bz.training.Resume("run", every_batches=200, callbacks=[early])
        model.fit(texts, labels, epochs=3, callbacks=[early, resume])

    The state holds the weights, the optimizer's variables (moments, iterations, accumulated gradients, the loss scale),
    the step that dropout draws from, metrics, the history, and the state of other callbacks. Finished batches are read
    and skipped, so the data must come in the same order in the second run. That holds for a task's `fit` on lists and
    for any `PyDataset` whose batches depend on their index and its epoch only and that is read from the beginning in
    each epoch. Other callbacks are called for the skipped batches with the logs of the last finished one;
    `is_skipping` is then True.

    Args:
        directory: Where `training_state/` is kept. It is deleted when the run has ended.
        every_batches: Batches from one save to the next; the beginning of each epoch is saved too.
        callbacks: Callbacks whose state is saved: the numbers and arrays among their attributes, such as the best score
            and weights of `EarlyStopping`.

    Raises:
        ValueError: `every_batches` is not a positive number; or, when training begins, the saved state is of another
            run.
        CheckpointError: The state can't be read or written.
    """

    def __init__(
        self, directory: str | Path, every_batches: int = 500, callbacks: Sequence[keras.callbacks.Callback] = ()
    ):
        super().__init__()
        if isinstance(every_batches, bool) or not isinstance(every_batches, int) or every_batches < 1:
            raise ValueError(f"every_batches must be a number of batches, 1 or more. Received: {every_batches!r}.")
        self.directory, self.every_batches, self.callbacks = Path(directory), every_batches, list(callbacks)
        self.is_skipping = False
        self._state: TrainingState | None = None
        self._epoch, self._stride = 0, 1

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._stride = self.model.steps_per_execution
        with writer_first():
            self._state = state = TrainingState.read(self.directory)
        if state is None:
            return
        differing = [key for key, value in self._description().items() if state.notes["run"].get(key) != value]
        if differing:
            raise ValueError(
                f"{state.folder} is of another run: its {differing[0]} differ. Delete it, or name another directory."
            )
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        state.restore(self.model, "model", "optimizer")
        set_initial_epoch(self.model, state.notes["epoch"])

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        if self._state is None:
            self._save(epoch, 0, {})
            return
        # Only now: callbacks reset their state when training begins, and metrics when an epoch does.
        state, self._state = self._state, None
        set_initial_epoch(self.model, None)
        for callback, attributes in zip(self._stateful_callbacks(), state.notes["callbacks"]):
            for name, value in attributes.items():
                setattr(callback, name, _unpack(value, state.arrays))
        if state.notes["batches"]:
            self._skip_batches(state)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if (
            not self.is_skipping
            and (batch + 1) // self.every_batches > (batch + 1 - self._stride) // self.every_batches
        ):
            self._save(self._epoch, batch + 1, logs or {})

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        TrainingState.remove(self.directory)

    def _skip_batches(self, state: TrainingState) -> None:
        """Replaces the training step by one that reads the finished batches and does nothing."""
        # Not `self.model` inside the step: reading it takes the state out of JAX's hands.
        model, left, backend = self.model, state.notes["batches"], keras.backend.backend()
        train, logs = model.train_function, state.notes["logs"]
        if backend != "tensorflow":  # which creates metrics with the first batch
            state.restore(model, "metric")
        self.is_skipping = True

        def step(*arguments):
            nonlocal left
            if left <= 0:
                self.is_skipping = False
                model.train_function = train
                return train(*arguments)
            is_first = left == state.notes["batches"]
            left -= self._stride
            if backend != "torch":  # which passes batches; the others pass an iterator
                for _ in range(self._stride):
                    batch = next(arguments[-1])
            if backend == "tensorflow" and is_first:
                build_metrics(model, batch)
                state.restore(model, "metric")
            return (logs, arguments[0]) if backend == "jax" else logs

        model.train_function = step

    def _description(self) -> dict[str, Any]:
        """What a resumed run must agree in."""
        variables = named_variables(self.model).items()
        names = [f"{v.path} {tuple(v.shape)}" for name, v in variables if name.startswith("model.")]
        return {"steps": self.params.get("steps"), "variables": names}

    def _save(self, epoch: int, batches: int, logs: dict[str, Any]) -> None:
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        arrays: dict[str, np.ndarray] = {}
        notes = {
            "epoch": epoch,
            "batches": batches,
            "logs": {name: float(value) for name, value in logs.items()},
            "run": self._description(),
            "callbacks": [_attributes(callback, arrays) for callback in self._stateful_callbacks()],
        }
        TrainingState.write(self.directory, self.model, notes, arrays)

    def _stateful_callbacks(self) -> list[keras.callbacks.Callback]:
        history = getattr(self.model, "history", None)
        return [*self.callbacks, *([history] if history is not None else [])]


def _attributes(callback: keras.callbacks.Callback, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The attributes of a callback that are numbers, arrays, None, or lists and dicts of these."""
    attributes = {}
    for name, value in vars(callback).items():
        # Keras flips the sign of min_delta when it first compares scores, once in every process.
        if name not in ("params", "min_delta") and not name.startswith("__"):
            with suppress(TypeError):
                attributes[name] = _pack(value, arrays)
    return attributes


def _pack(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON has it, with references to the arrays in it, which go to `arrays`.

    Raises:
        TypeError: There is something else in it.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, np.ndarray):
        name = f"callback.{len(arrays)}"
        arrays[name] = value
        return {ARRAY: name}
    if getattr(value, "shape", None) == ():
        return np.asarray(keras.ops.convert_to_numpy(value)).item()
    if isinstance(value, (list, tuple)):
        return [_pack(item, arrays) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _pack(item, arrays) for key, item in value.items()}
    raise TypeError


def _unpack(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, arrays) for item in value]
    if isinstance(value, dict):
        return arrays[value[ARRAY]] if ARRAY in value else {key: _unpack(item, arrays) for key, item in value.items()}
    return value
