"""Taking up a killed run where it was, in the middle of an epoch too, so that it ends as if nothing had happened."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import build_metrics, set_initial_epoch
from bertzoo.checkpoints.saving import recover
from bertzoo.training.state import FOLDER, model_variables, read_state, write_state


class Resume(keras.callbacks.Callback):
    """Keeps the state of a run on disk, and goes on from it when the same `fit` is called again.

        model.fit(texts, labels, epochs=3, callbacks=[early, bz.training.Resume("run", every=200, callbacks=[early])])

    Kept are the weights, the optimizer's variables (moments, the schedule's place, accumulated gradients, the scale of
    the loss), the count of training calls that dropout draws from, metrics, the history, and what the other callbacks
    know. Batches that were done before the kill are drawn and passed over, so the data must come in the same order in
    the second run: that of a task's `fit` on rows does, and any `PyDataset` whose batches depend on their number and on
    its epoch alone, read from begin to end in each epoch. Other callbacks are told of the batches passed over with the
    logs of the last one that was done; `passing_over` says so.

    Args:
        directory: Where `training_state/` is kept. It is deleted when the run has ended.
        every: Batches from one saving to the next; the start of each epoch is saved too.
        callbacks: Callbacks whose state goes with the run: the numbers and arrays among their attributes, such as the
            best score and weights of `EarlyStopping`.

    Raises:
        ValueError: `every` is no positive number; or, when training begins, the state there is of another run.
        CheckpointError: The state can't be read or written.
    """

    def __init__(self, directory: str | Path, every: int = 500, callbacks: Sequence[keras.callbacks.Callback] = ()):
        super().__init__()
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be a number of batches, 1 or more; it is {every!r}.")
        self.folder, self.every, self.callbacks = Path(directory) / FOLDER, every, list(callbacks)
        self.passing_over = False
        self._state: dict[str, Any] | None = None
        self._epoch, self._stride = 0, 1

    # ---- what Keras calls

    def on_train_begin(self, logs=None):
        self._stride = self.model.steps_per_execution
        recover(self.folder)
        self._state = self._read() if self.folder.exists() else None
        if self._state is None:
            return
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self._assign("model", model_variables(self.model))
        self._assign("optimizer", self.model.optimizer.variables)
        set_initial_epoch(self.model, self._state["epoch"])

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        if self._state is None:
            self._save(epoch, 0, {})
            return
        # Only now: the others forget what they know when training begins, and metrics when an epoch does.
        state, self._state = self._state, None
        set_initial_epoch(self.model, None)
        self._restore_callbacks(state)
        if state["batches"]:
            if keras.backend.backend() != "tensorflow":  # where metrics are made when the first batch comes
                self._assign("metric", self.model.metrics_variables, state)
            self._pass_over(state)

    def on_train_batch_end(self, batch, logs=None):
        if not self.passing_over and (batch + 1) // self.every > (batch + 1 - self._stride) // self.every:
            self._save(self._epoch, batch + 1, logs)

    def on_train_end(self, logs=None):
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- passing over

    def _pass_over(self, state: dict[str, Any]) -> None:
        """Puts something in the place of the training step that takes the batches that were done and does nothing."""
        # `self.model` is not for inside the step: to ask for it takes the state out of JAX's hands.
        model, left, backend = self.model, [state["batches"]], keras.backend.backend()
        train, logs = model.train_function, state["logs"]
        self.passing_over = True

        def step(*arguments):
            if left[0] <= 0:
                self.passing_over = False
                model.train_function = train
                return train(*arguments)
            left[0] -= self._stride
            if backend != "torch":  # which is handed batches, the others an iterator
                for _ in range(self._stride):
                    batch = next(arguments[-1])
            if backend == "tensorflow" and state["tensors"]:
                build_metrics(model, batch)
                self._assign("metric", model.metrics_variables, state)
                state["tensors"] = {}
            return (logs, arguments[0]) if backend == "jax" else logs

        model.train_function = step

    # ---- the state

    def _described(self) -> dict[str, Any]:
        """What must be alike in the run that goes on."""
        names = [f"{variable.path} {tuple(variable.shape)}" for variable in model_variables(self.model)]
        return {"steps": self.params.get("steps"), "variables": names}

    def _save(self, epoch: int, batches: int, logs: dict | None) -> None:
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        groups = {
            "model": model_variables(self.model),
            "optimizer": self.model.optimizer.variables,
            "metric": self.model.metrics_variables,
        }
        tensors = {f"{name}.{i}": _array(value) for name, group in groups.items() for i, value in enumerate(group)}
        kept = []
        for i, callback in enumerate(self._kept_callbacks()):
            numbers, arrays = _split_state(vars(callback))
            kept.append({"class": type(callback).__name__, "numbers": numbers, "arrays": {}})
            for name, values in arrays.items():
                kept[-1]["arrays"][name] = len(values)
                tensors.update({f"callback.{i}.{name}.{j}": value for j, value in enumerate(values)})
        state = {
            "epoch": epoch,
            "batches": batches,
            "logs": {name: float(value) for name, value in (logs or {}).items()},
            "run": self._described(),
            "callbacks": kept,
        }
        write_state(self.folder, tensors, state)

    def _read(self) -> dict[str, Any]:
        tensors, state = read_state(self.folder)
        state["tensors"] = tensors
        here = self._described()
        if state["run"] != here:
            name = next(key for key in here if state["run"].get(key) != here[key])
            raise ValueError(
                f"{self.folder} is of another run: its {name} differ. Delete it, or name another directory."
            )
        return state

    def _assign(self, name: str, variables, state: dict | None = None) -> None:
        tensors = (state or self._state)["tensors"]
        stored = sum(key.startswith(f"{name}.") for key in tensors)
        if stored != len(variables):
            raise ValueError(
                f"{self.folder} is of another run: it has {stored} {name} variables, this one {len(variables)}. "
                "Delete it, or name another directory."
            )
        for i, variable in enumerate(variables):
            variable.assign(tensors[f"{name}.{i}"])

    def _kept_callbacks(self) -> list[keras.callbacks.Callback]:
        history = getattr(self.model, "history", None)
        return [*self.callbacks, *([history] if history is not None else [])]

    def _restore_callbacks(self, state: dict[str, Any]) -> None:
        for i, (callback, kept) in enumerate(zip(self._kept_callbacks(), state["callbacks"])):
            for name, value in kept["numbers"].items():
                setattr(callback, name, value)
            for name, count in kept["arrays"].items():
                setattr(callback, name, [state["tensors"][f"callback.{i}.{name}.{j}"] for j in range(count)])


def _array(variable) -> np.ndarray:
    return np.array(keras.ops.convert_to_numpy(variable))


def _split_state(attributes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[np.ndarray]]]:
    """The attributes that are numbers (or None, or lists and dicts of numbers), and those that are lists of arrays."""
    numbers, arrays = {}, {}
    for name, value in attributes.items():
        # Keras turns the sign of min_delta where it first compares scores, in every process once.
        if name in ("params", "min_delta") or name.startswith("__"):
            continue
        if isinstance(value, list) and value and all(isinstance(item, np.ndarray) for item in value):
            arrays[name] = value
        else:
            plain = _plain(value)
            if plain is not _NEITHER:
                numbers[name] = plain
    return numbers, arrays


_NEITHER = object()


def _plain(value):
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (np.integer, np.floating)) or (hasattr(value, "shape") and value.shape == ()):
        return np.asarray(keras.ops.convert_to_numpy(value)).item()
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return _NEITHER if any(item is _NEITHER for item in items) else items
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items = {key: _plain(item) for key, item in value.items()}
        return _NEITHER if any(item is _NEITHER for item in items.values()) else items
    return _NEITHER
