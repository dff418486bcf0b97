"""What a run tells of itself while it goes: its loss curve, its speed, and whether it has been asked to stop."""

import signal
import threading
import time
from contextlib import contextmanager

import keras
import numpy as np

from bertzoo._keras_hooks import model_of
from bertzoo.pretraining.events import EventLog
from bertzoo.training.loss_mean import TOTALS, WEIGHTS


class Watch(keras.callbacks.Callback):
    """Keeps the mean loss of every `every` steps, as [step, loss], over all blocks of a run.

    Args:
        steps: Of the whole run.
        every: Steps to a point of the curve.
        tokens, flops: Functions of (first step, last step): what the steps between take.
        peak: Operations a second that the device can do; None if not known.
        log: Gets the scores at each point.
        quiet: Print nothing.
    """

    # Keras then reads the logs in another thread; else each step would wait for the device.
    async_safe = True

    def __init__(self, steps: int, every: int, tokens, flops, peak: float | None, log: EventLog | None, quiet: bool):
        super().__init__()
        self.steps, self.every, self.tokens, self.flops, self.peak = steps, every, tokens, flops, peak
        self.log, self.quiet = log, quiet
        self.points, self.stopping = [], False
        self._totals, self._weights, self._lock = 0.0, 0.0, threading.Lock()  # since the last point, by term
        self.begin_block(0)

    def begin_block(self, step: int) -> None:
        self._first, self._seen = step, (0.0, 0.0)
        self._next, self._waiting = (step // self.every + 1) * self.every, {}
        self._clock, self._clock_step = time.time(), step

    def on_train_batch_end(self, batch, logs=None):
        if self.stopping:
            # Not `self.model`, which would bring the state back from the device on JAX.
            model_of(self).stop_training = True
        step = self._first + batch + 1
        if step % self.every == 0:
            with self._lock:  # Keras has several threads, and they may come here out of order
                self._waiting[step] = logs
                while self._next in self._waiting:
                    self._point(self._next, self._waiting.pop(self._next))
                    self._next += self.every

    def end_block(self, logs) -> None:
        """Takes the block's last steps in; `logs` are those of the whole block."""
        self._add(logs)

    def notes(self) -> dict:
        """What another process needs to go on with the curve."""
        totals, weights = (np.atleast_1d(part).tolist() for part in (self._totals, self._weights))
        return {"points": self.points, "totals": totals, "weights": weights}

    def restore(self, notes: dict) -> None:
        self.points = notes["points"]
        self._totals, self._weights = np.array(notes["totals"]), np.array(notes["weights"])

    def _add(self, logs) -> None:
        # What is logged are sums since the block's begin.
        totals, weights = (np.array(logs[name], "float64") for name in (TOTALS, WEIGHTS))
        self._totals = self._totals + totals - self._seen[0]
        self._weights = self._weights + weights - self._seen[1]
        self._seen = totals, weights

    def _point(self, step: int, logs) -> None:
        self._add(logs)
        loss = float(np.sum(self._totals / np.maximum(self._weights, 1e-30)))
        self.points.append([step, round(loss, 6)])
        self._totals, self._weights = 0.0, 0.0
        seconds = max(time.time() - self._clock, 1e-9)
        speed = self.tokens(self._clock_step, step) / seconds
        share = None if self.peak is None else self.flops(self._clock_step, step) / seconds / self.peak
        left = (self.steps - step) * seconds / (step - self._clock_step)
        self._clock, self._clock_step = time.time(), step
        if not self.quiet:
            peak = "" if share is None else f"  {share:.0%} of peak"
            print(f"step {step:,}/{self.steps:,}  loss {loss:.4f}  {speed:,.0f} tokens/s{peak}  {_clock(left)} left")
        if self.log is not None:
            scores = {name: float(value) for name, value in logs.items() if name not in ("loss", TOTALS, WEIGHTS)}
            self.log.scalars(step, {**scores, "loss": loss, "tokens_per_second": speed})


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


@contextmanager
def on_termination(action):
    """Calls `action` instead of ending where the process is asked to (SIGTERM, Ctrl-C); a second Ctrl-C ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def ask(number, frame):
        action()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
