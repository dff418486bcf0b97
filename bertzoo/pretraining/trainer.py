"""The training loop of a pre-training run: blocks of steps, a state written after each, a loss curve."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import loss_tracker, model_of, print_message
from bertzoo.accelerator import peak_flops
from bertzoo.pretraining.config import PretrainConfig
from bertzoo.pretraining.corpus import Sentences
from bertzoo.pretraining.corpus_dataset import CorpusDataset
from bertzoo.pretraining.objectives import Objective
from bertzoo.training.metrics import TOTALS, WEIGHTS
from bertzoo.training.state import TrainingState, model_groups, write_state
from bertzoo.training.step import BackendStep


class ProgressLogger(keras.callbacks.Callback):
    """Records the mean loss of every `log_every` steps, as [step, loss], over all blocks of a run, and prints it.

    Args:
        steps: Steps of the whole run.
        log_every: Steps from one point of the curve to the next.
        tokens, flops: Functions of (first step, last step): what the steps between take.
        peak: Operations a second of the device; None if unknown.
        verbose: Whether to print.
    """

    # Keras then reads the logs in another thread; otherwise each step would wait for the device.
    async_safe = True

    def __init__(
        self,
        steps: int,
        log_every: int,
        tokens: Callable[[int, int], int],
        flops: Callable[[int, int], float],
        peak: float | None,
        verbose: bool,
    ):
        super().__init__()
        self.steps, self.log_every, self.tokens, self.flops = steps, log_every, tokens, flops
        self.peak, self.verbose = peak, verbose
        self.points: list[list[float]] = []
        self.is_stopping = False
        self._totals, self._weights, self._lock = 0.0, 0.0, threading.Lock()  # since the last point, by loss
        self.begin_block(0)

    def begin_block(self, step: int) -> None:
        """Prepares for a block that begins after `step`."""
        self._first, self._seen = step, (0.0, 0.0)
        self._next, self._waiting = (step // self.log_every + 1) * self.log_every, {}
        self._clock, self._clock_step = time.time(), step

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self.is_stopping:
            # Not `self.model`, which would fetch the state from the device on JAX.
            model_of(self).stop_training = True
        step = self._first + batch + 1
        if step % self.log_every == 0:
            with self._lock:  # Keras has several threads, which may arrive out of order
                self._waiting[step] = logs
                while self._next in self._waiting:
                    self._add_point(self._next, self._waiting.pop(self._next))
                    self._next += self.log_every

    def end_block(self, logs: dict) -> None:
        """Adds the block's last steps; `logs` are those of the whole block."""
        self._add(logs)

    def get_state(self) -> dict[str, Any]:
        """What another process needs to continue the curve."""
        totals, weights = (np.atleast_1d(part).tolist() for part in (self._totals, self._weights))
        return {"points": self.points, "totals": totals, "weights": weights}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues the curve of `get_state`."""
        self.points = state["points"]
        self._totals, self._weights = np.array(state["totals"]), np.array(state["weights"])

    def _add(self, logs) -> None:
        # The logs are sums since the beginning of the block.
        totals, weights = (np.array(logs[name], "float64") for name in (TOTALS, WEIGHTS))
        self._totals = self._totals + totals - self._seen[0]
        self._weights = self._weights + weights - self._seen[1]
        self._seen = totals, weights

    def _add_point(self, step: int, logs) -> None:
        self._add(logs)
        loss = float(np.sum(self._totals / np.maximum(self._weights, 1e-30)))
        self.points.append([step, round(loss, 6)])
        self._totals, self._weights = 0.0, 0.0
        seconds = max(time.time() - self._clock, 1e-9)
        if self.verbose:
            speed = self.tokens(self._clock_step, step) / seconds
            share = None if self.peak is None else self.flops(self._clock_step, step) / seconds / self.peak
            peak = "" if share is None else f"  {share:.0%} of peak"
            left = _clock((self.steps - step) * seconds / (step - self._clock_step))
            print_message(f"step {step:,}/{self.steps:,}  loss {loss:.4f}  {speed:,.0f} tokens/s{peak}  {left} left")
        self._clock, self._clock_step = time.time(), step


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


class Trainer:
    """Trains a compiled model in blocks of steps, each one call of `fit`, and saves the state after each block.

    Args:
        config: The run.
        objective: Its objective.
        model: The compiled model.
        directory: Where the state is kept.
        minutes: Time between two saves.
    """

    def __init__(
        self, config: PretrainConfig, objective: Objective, model: keras.Model, directory: Path, minutes: float
    ):
        self.config, self.training, self.model = config, config.training, model
        self.directory, self.minutes = directory, minutes
        self.step, self.seconds = 0, 0.0
        longest_sentence = min(spec.length for spec in config.batches) - 2
        sentences = Sentences(config.corpus, longest_sentence)
        self._examples = objective.examples(config.corpus, self.training.short_seq_prob, sentences)
        self._transform = objective.transform(model)
        loss_tracker(model).shows_parts = True
        flops = {spec: objective.flops(model, spec) for spec in config.batches}
        spec_of = self._dataset(1).spec
        self.logger = ProgressLogger(
            self.training.steps,
            self.training.log_every,
            lambda a, b: sum(spec_of(i).length * spec_of(i).batch_size for i in range(a, b)),
            lambda a, b: sum(flops[spec_of(i)] for i in range(a, b)),
            peak_flops(self.training.dtype),
            bool(self.training.verbose),
        )

    def _dataset(self, steps: int) -> CorpusDataset:
        return CorpusDataset(
            self._examples,
            self.config.batches,
            self._transform,
            steps=steps,
            first_step=self.step,
            seed=self.training.seed,
            steps_per_epoch=self.training.steps_per_epoch,
            dupe_factor=self.training.dupe_factor,
        )

    def train(self) -> None:
        """Trains to the end, or until the process is asked to terminate."""
        block = every = self.training.log_every
        if self.training.verbose:
            ratio = self.logger.tokens(0, self.training.steps) / max(1, len(self.config.corpus.tokens))
            print_message(
                f"{self.training.steps:,} steps of examples sampled with replacement: {ratio:.3g} × the corpus; about "
                f"{1 - np.exp(-ratio):.0%} of its tokens are read at least once"
            )
        with on_termination(self._stop):
            while self.step < self.training.steps and not self.logger.is_stopping:
                # Blocks end at points of the curve.
                end = min(self.training.steps, (self.step + block) // every * every)
                started, first = time.time(), self.step
                self._train_block(end)
                seconds = time.time() - started
                self.seconds += seconds
                if self.step < self.training.steps:
                    self._save()
                block = max(every, int((self.step - first) * self.minutes * 60 / max(seconds, 1e-9)))

    def _train_block(self, end: int) -> None:
        self.logger.begin_block(self.step)
        self.model.stop_training = False
        data = self.model.to_device(self._dataset(end - self.step))
        history = BackendStep.fit(self.model, data, epochs=1, shuffle=False, verbose=0, callbacks=[self.logger]).history
        # Of all counters of steps, the one that is exact after an interruption.
        self.step = self.model.backbone.step.count
        self.logger.end_block({name: values[-1] for name, values in history.items()})
        loss = float(history["loss"][-1])
        if not np.isfinite(loss):
            raise ValueError(f"the loss is {loss} at step {self.step:,}: lower the learning rate.")

    def _stop(self) -> None:
        self.logger.is_stopping = True

    def _save(self) -> None:
        notes = {"step": self.step, "seconds": self.seconds, "logger": self.logger.get_state()}
        write_state(self.directory, model_groups(self.model), {**notes, "config": self.config.fingerprint()})

    def restore(self) -> None:
        """Continues the unfinished run in the directory.

        Raises:
            ValueError: There is none, or it has other settings or another corpus.
        """
        state = TrainingState.read(self.directory)
        if state is None:
            raise ValueError(f"{self.directory} holds no state of an unfinished run to resume.")
        for group, variables in model_groups(self.model).items():
            state.assign(group, variables)
        before, now = state.notes["config"], self.config.fingerprint()
        changed = [key for key, value in now.items() if before.get(key) != value]
        if changed:
            differences = "; ".join(f"{key} was {before.get(key)!r} and is {now[key]!r}" for key in changed)
            raise ValueError(
                f"the run in {self.directory} has other settings: {differences}. Resume it with the same settings and "
                "corpus, or begin a new run in another directory."
            )
        self.step, self.seconds = state.notes["step"], state.notes["seconds"]
        self.logger.set_state(state.notes["logger"])

    def result(self) -> dict[str, Any]:
        """The content of training.json."""
        tokens = self.logger.tokens(0, self.step)
        return {
            "curve": self.logger.points,
            "steps": self.step,
            "tokens": tokens,
            "flops": self.logger.flops(0, self.step),
            "seconds": round(self.seconds, 1),
            "tokens_per_second": round(tokens / max(self.seconds, 1e-9)),
        }


@contextmanager
def on_termination(action: Callable[[], None]) -> Iterator[None]:
    """Calls `action` when the process is asked to terminate (SIGTERM, Ctrl-C); a second Ctrl-C terminates it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number, frame):
        action()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
