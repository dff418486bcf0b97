"""Calls of one model that come at once, or end before their time."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import keras

# Elsewhere a prediction changes nothing that another could see, and several run side by side.
ONE_AT_A_TIME = keras.backend.backend() == "jax"


class Calls:
    """Mixed into models before `keras.Model`: what shares a model's state waits for its turn.

    Keras keeps the metrics in the model, and on JAX also the weights of the step before.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._turn = threading.RLock()  # a callback's calls come within another

    def rematerialized_call(self, layer_call, *args, **kwargs):
        return layer_call  # its layers are recomputed; it counts its training calls, once each

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """A block in which no other call of the model runs."""
        with self._turn:
            yield

    def fit(self, *args, **kwargs):
        with self._whole():
            return super().fit(*args, **kwargs)

    def evaluate(self, *args, **kwargs):
        with self._whole():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args, **kwargs):
        if not ONE_AT_A_TIME:
            return super().predict(*args, **kwargs)
        with self._whole():
            return super().predict(*args, **kwargs)

    def train_on_batch(self, *args, **kwargs):
        with self._whole():
            return super().train_on_batch(*args, **kwargs)

    def test_on_batch(self, *args, **kwargs):
        with self._whole():
            return super().test_on_batch(*args, **kwargs)

    def predict_on_batch(self, *args, **kwargs):
        if not ONE_AT_A_TIME:
            return super().predict_on_batch(*args, **kwargs)
        with self._whole():
            return super().predict_on_batch(*args, **kwargs)


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """A block that Ctrl-C ends only after its last line; pressed twice, at once."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # it comes to the main thread alone, or to nobody
        return
    came = []

    def wait(*signal_and_frame) -> None:
        came.append(signal_and_frame)
        if len(came) > 1:
            before(*signal_and_frame)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if len(came) == 1:
            before(*came[0])
