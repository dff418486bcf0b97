"""Initial weights: the same on every backend, drawn on the host from the seed and the weight's own name."""

import contextlib
from collections.abc import Container, Iterator
from contextvars import ContextVar

import keras
import numpy as np

from bertzoo.random import get_seed, host_generator

# Of one thread: what another makes meanwhile is drawn.
_loaded_later: ContextVar[Container[str]] = ContextVar("loaded_later", default=())


@keras.saving.register_keras_serializable("bertzoo")
class HostTruncatedNormal(keras.initializers.Initializer):
    """Normal numbers of mean 0 cut at two standard deviations, as BERT's (google-research/bert, modeling.py).

    They depend on the seed of `bertzoo.set_seed` and on `name`, not on the order in which weights are made.
    """

    def __init__(self, stddev: float = 0.02, name: str = "", seed: int | None = None):
        self.stddev, self.name = stddev, name
        self.seed = get_seed() if seed is None else seed

    def __call__(self, shape, dtype=None):
        if self.name in _loaded_later.get():
            return keras.ops.zeros(shape, dtype)
        generator = host_generator(self.seed, self.name)
        values = generator.standard_normal(shape, dtype=np.float32)
        while (outside := np.abs(values) > 2).any():
            values[outside] = generator.standard_normal(int(outside.sum()), dtype=np.float32)
        return keras.ops.convert_to_tensor(values * np.float32(self.stddev), dtype=dtype)

    def get_config(self):
        return {"stddev": self.stddev, "name": self.name, "seed": self.seed}


def build_dense(parent: keras.layers.Layer, dense: keras.layers.Layer, input_size: int, stddev: float) -> None:
    """Builds a Dense or Conv1D layer of `parent`, which is being built itself, with initial weights named after its
    path."""
    dense.kernel_initializer = HostTruncatedNormal(stddev, f"{parent.path}/{dense.name}/kernel")
    dense.build((None, None, input_size))


@contextlib.contextmanager
def skip_drawing(names: Container[str]) -> Iterator[None]:
    """Leaves the weights of these paths at zero: a checkpoint fills them, and drawing 110 M numbers takes seconds."""
    token = _loaded_later.set(names)
    try:
        yield
    finally:
        _loaded_later.reset(token)
