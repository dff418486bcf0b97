"""Concurrent and interrupted calls of one model."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras


class ThreadSafeModel(keras.Model):
    """The base of models that train: calls that share a model's state run one after another.

    Keras keeps the metrics in the model. On JAX a call also takes the weights out of it; see `JaxModel`.
    """

    # Whether the backend may choose how to compile: `jit_compile="auto"`, and no `run_eagerly`.
    jit_compile_is_auto = True

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._call_lock = threading.RLock()  # a callback may call the model within `fit`

    def rematerialized_call(self, layer_call: Callable, *args: Any, **kwargs: Any) -> Callable:
        return layer_call  # the blocks are rematerialized, not the model, which counts its training calls

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self.jit_compile_is_auto = kwargs.get("jit_compile", "auto") == "auto" and not kwargs.get("run_eagerly")
        super().compile(*args, **kwargs)

    @contextmanager
    def exclusive_call(self) -> Iterator[None]:
        """Within it, no other call of the model runs."""
        with self._call_lock:
            yield

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        with self.exclusive_call():
            return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with self.exclusive_call():
            return super().evaluate(*args, **kwargs)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with self.exclusive_call():
            return super().train_on_batch(*args, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with self.exclusive_call():
            return super().test_on_batch(*args, **kwargs)

    @property
    def runs_in_parts(self) -> bool:
        """Whether a batch is computed part by part, each by a `compiled_part`."""
        return False

    def compiled_part(self, function: Callable) -> Callable:
        """A function of the model and a part of a batch, as it is to be called for each part. JAX and TensorFlow
        compile it with the step, so there it is the function itself."""
        return function

    def dataset_on_device(self, dataset: keras.utils.PyDataset) -> keras.utils.PyDataset:
        """The dataset as `fit` reads it fastest. JAX and TensorFlow copy a batch while they compute another one, so
        there it is the dataset itself."""
        return dataset


@contextmanager
def handle_signals(handler: Callable[[int, Any], None], *signal_numbers: int) -> Iterator[None]:
    """Within it, a function of (number, frame) handles the signals of these numbers; in the main thread, which alone
    gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signal_numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delays Ctrl-C until the end of the block; pressed twice, it interrupts at once."""
    handler: Any = signal.getsignal(signal.SIGINT)
    received: list[tuple] = []

    def wait(*signal_and_frame: Any) -> None:
        received.append(signal_and_frame)
        if len(received) > 1:
            handler(*signal_and_frame)

    if not callable(handler):
        yield
        return
    try:
        with handle_signals(wait, signal.SIGINT):
            yield
    finally:
        if len(received) == 1:
            handler(*received[0])
