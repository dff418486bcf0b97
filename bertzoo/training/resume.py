"""Resuming a killed run in the middle of an epoch, so that it ends as if it had not been interrupted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import build_metrics, set_initial_epoch
from bertzoo.training.state import TrainingState, model_groups, remove_state, write_state


class Resume(keras.callbacks.Callback):
    """Saves the state of a run to disk, and resumes it when the same `fit` is called again.

        model.fit(texts, labels, epochs=3, callbacks=[early, bz.training.Resume("run", every=200, callbacks=[early])])

    The state holds the weights, the optimizer's variables (moments, iterations, accumulated gradients, the loss scale),
    the step that dropout draws from, metrics, the history, and the state of other callbacks. Finished batches are read
    and skipped, so the data must come in the same order in the second run. That holds for a task's `fit` on lists and
    for any `PyDataset` whose batches depend on their index and its epoch only and that is read from the beginning in
    each epoch. Other callbacks are called for the skipped batches with the logs of the last finished one;
    `is_skipping` is then True.

    Args:
        directory: Where `training_state/` is kept. It is deleted when the run has ended.
        every: Batches from one save to the next; the beginning of each epoch is saved too.
        callbacks: Callbacks whose state is saved: the numbers and arrays among their attributes, such as the best score
            and weights of `EarlyStopping`.

    Raises:
        ValueError: `every` is not a positive number; or, when training begins, the saved state is of another run.
        CheckpointError: The state can't be read or written.
    """

    def __init__(self, directory: str | Path, every: int = 500, callbacks: Sequence[keras.callbacks.Callback] = ()):
        super().__init__()
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be a number of batches, 1 or more. Received: {every!r}.")
        self.directory, self.every, self.callbacks = Path(directory), every, list(callbacks)
        self.is_skipping = False
        self._state: TrainingState | None = None
        self._epoch, self._stride = 0, 1

    # ---- what Keras calls

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._stride = self.model.steps_per_execution
        self._state = TrainingState.read(self.directory)
        if self._state is None:
            return
        self._check(self._state)
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        for group, variables in model_groups(self.model).items():
            self._state.assign(group, variables)
        set_initial_epoch(self.model, self._state.notes["epoch"])

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._epoch = epoch
        if self._state is None:
            self._save(epoch, 0, {})
            return
        # Only now: callbacks reset their state when training begins, and metrics when an epoch does.
        state, self._state = self._state, None
        set_initial_epoch(self.model, None)
        self._restore_callbacks(state)
        if state.notes["batches"]:
            if keras.backend.backend() != "tensorflow":  # which creates metrics with the first batch
                state.assign("metric", self.model.metrics_variables)
            self._skip_batches(state)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if not self.is_skipping and (batch + 1) // self.every > (batch + 1 - self._stride) // self.every:
            self._save(self._epoch, batch + 1, logs)

    def on_train_end(self, logs: dict | None = None) -> None:
        remove_state(self.directory)

    # ---- skipping

    def _skip_batches(self, state: TrainingState) -> None:
        """Replaces the training step by one that reads the finished batches and does nothing."""
        # Not `self.model` inside the step: reading it takes the state out of JAX's hands.
        model, left, backend = self.model, [state.notes["batches"]], keras.backend.backend()
        train, logs = model.train_function, state.notes["logs"]
        self.is_skipping = True

        def step(*arguments):
            if left[0] <= 0:
                self.is_skipping = False
                model.train_function = train
                return train(*arguments)
            is_first = left[0] == state.notes["batches"]
            left[0] -= self._stride
            if backend != "torch":  # which passes batches; the others pass an iterator
                for _ in range(self._stride):
                    batch = next(arguments[-1])
            if backend == "tensorflow" and is_first:
                build_metrics(model, batch)
                state.assign("metric", model.metrics_variables)
            return (logs, arguments[0]) if backend == "jax" else logs

        model.train_function = step

    # ---- the state

    def _description(self) -> dict[str, Any]:
        """What a resumed run must agree in."""
        names = [f"{variable.path} {tuple(variable.shape)}" for variable in model_groups(self.model)["model"]]
        return {"steps": self.params.get("steps"), "variables": names}

    def _check(self, state: TrainingState) -> None:
        here = self._description()
        if state.notes["run"] != here:
            name = next(key for key in here if state.notes["run"].get(key) != here[key])
            raise ValueError(
                f"{state.folder} is of another run: its {name} differ. Delete it, or name another directory."
            )

    def _save(self, epoch: int, batches: int, logs: dict | None) -> None:
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        arrays, callbacks = {}, []
        for i, callback in enumerate(self._stateful_callbacks()):
            numbers, lists = _split_state(vars(callback))
            callbacks.append({"numbers": numbers, "arrays": {name: len(values) for name, values in lists.items()}})
            for name, values in lists.items():
                arrays.update({f"callback.{i}.{name}.{j}": value for j, value in enumerate(values)})
        notes = {
            "epoch": epoch,
            "batches": batches,
            "logs": {name: float(value) for name, value in (logs or {}).items()},
            "run": self._description(),
            "callbacks": callbacks,
        }
        groups = {**model_groups(self.model), "metric": self.model.metrics_variables}
        write_state(self.directory, groups, notes, arrays)

    def _stateful_callbacks(self) -> list[keras.callbacks.Callback]:
        history = getattr(self.model, "history", None)
        return [*self.callbacks, *([history] if history is not None else [])]

    def _restore_callbacks(self, state: TrainingState) -> None:
        for i, (callback, saved) in enumerate(zip(self._stateful_callbacks(), state.notes["callbacks"])):
            for name, value in saved["numbers"].items():
                setattr(callback, name, value)
            for name, count in saved["arrays"].items():
                setattr(callback, name, [state.array(f"callback.{i}.{name}.{j}") for j in range(count)])


def _split_state(attributes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[np.ndarray]]]:
    """The attributes that are numbers (or None, or lists and dicts of these), and those that are lists of arrays."""
    numbers, arrays = {}, {}
    for name, value in attributes.items():
        # Keras flips the sign of min_delta when it first compares scores, once in every process.
        if name in ("params", "min_delta") or name.startswith("__"):
            continue
        if isinstance(value, list) and value and all(isinstance(item, np.ndarray) for item in value):
            arrays[name] = value
        else:
            plain = _plain(value)
            if plain is not _NOT_PLAIN:
                numbers[name] = plain
    return numbers, arrays


_NOT_PLAIN = object()


def _plain(value):
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (np.integer, np.floating)) or (hasattr(value, "shape") and value.shape == ()):
        return np.asarray(keras.ops.convert_to_numpy(value)).item()
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in items) else items
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items = {key: _plain(item) for key, item in value.items()}
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in items.values()) else items
    return _NOT_PLAIN
