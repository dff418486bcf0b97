"""Concurrent and interrupted calls of one model."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import keras

# On the other backends predictions share no state, so several may run at once.
ONE_AT_A_TIME = keras.backend.backend() == "jax"


class Calls:
    """Mixed into models before `keras.Model`: calls that share a model's state run one after another.

    Keras keeps the metrics in the model, and on JAX also the weights of the step before.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._turn = threading.RLock()  # a callback's calls come within another

    def rematerialized_call(self, layer_call, *args, **kwargs):
        return layer_call  # the blocks are rematerialized, not the model, which counts its training calls

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Within it, no other call of the model runs."""
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
    """Delays Ctrl-C until the end of the block; pressed twice, it interrupts at once."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # only the main thread gets the signal
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
