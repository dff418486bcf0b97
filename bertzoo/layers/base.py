"""What all layers share: configuration, initial weights, and a dropout key where the caller passes none."""

import contextlib
import inspect
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import flatten_layers, in_stateless_scope, unlocked_layer
from bertzoo.random import StepCounter, fold_in, get_seed, numpy_generator
from bertzoo.types import Tensor


class Layer(keras.layers.Layer):
    """A layer whose configuration is the arguments of its constructor, each kept as the attribute of the same name."""

    def constructor_arguments(self) -> dict[str, Any]:
        """The constructor's arguments, without name and dtype."""
        constructors = [vars(base).get("__init__") for base in type(self).__mro__ if issubclass(base, Layer)]
        parameters = [p for c in constructors if c for p in inspect.signature(c).parameters.values()]
        names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        return {name: getattr(self, name) for name in names if name not in ("self", "name")}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **keras.saving.serialize_keras_object(self.constructor_arguments())}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Layer":
        return cls(**keras.saving.deserialize_keras_object(config))

    def add_embedding_table(self, name: str, num_rows: int, width: int) -> Any:
        """A table to look rows up in, (num_rows, width), with random initial values; None for no rows."""
        if not num_rows:
            return None
        initializer = HostTruncatedNormal(self.initializer_range, f"{self.path}/{name}")
        # Not cast to half precision: the gradient of a frequent token sums thousands of terms.
        return self.add_weight(name=name, shape=(num_rows, width), initializer=initializer, autocast=False)


class DropoutLayer(Layer):
    """The base of layers with dropout.

    An encoder passes its blocks a key, or None at inference. A layer in a model of the user's own gets no key: it
    counts its own training calls, and draws from the seed and its name.
    """

    own_step: StepCounter | None = None

    def __call__(self, *args, **kwargs):
        # Encoders and tasks build their layers before they call them, and pass keys: they need no counters.
        if not self.built and "key" not in kwargs:
            self._count_calls()
        return super().__call__(*args, **kwargs)

    def _count_calls(self) -> None:
        settings = [item for layer in flatten_layers(self) for item in vars(layer).items()]
        if self.own_step is not None or not any(value for name, value in settings if "dropout" in name):
            return
        if self.built and in_stateless_scope():
            raise ValueError(
                f"the layer {self.name!r} has dropout, was built before it was called and is first called in a "
                "compiled step, where it can't begin to count its calls: call it once before, or pass key=."
            )
        with unlocked_layer(self):
            self.own_step = StepCounter(name=f"{self.name}_step")

    def resolve_dropout_key(self, key: Tensor | None, training: bool | None) -> Tensor | None:
        """The key that was passed, or in training one of the layer's own."""
        if key is not None or not training:
            return key
        self._count_calls()
        if self.own_step is None:
            return None
        return fold_in(self.own_step.next_key(), zlib.crc32(self.name.encode()))

    def rematerialized_call(self, layer_call, *args, **kwargs):
        # Counted here, since what is recomputed would count again.
        if "key" not in kwargs:
            kwargs["key"] = self.resolve_dropout_key(None, kwargs.get("training"))
        # JAX would take what is no tensor for one, and TensorFlow takes tensors alone, without names.
        structure = (args, kwargs)
        leaves = keras.tree.flatten(structure)

        def call_on_tensors(*tensors):
            values = iter(tensors)
            filled = [next(values) if keras.ops.is_tensor(leaf) else leaf for leaf in leaves]
            args, kwargs = keras.tree.pack_sequence_as(structure, filled)
            return layer_call(*args, **kwargs)

        tensors = [leaf for leaf in leaves if keras.ops.is_tensor(leaf)]
        call = super().rematerialized_call(call_on_tensors, *tensors)
        return lambda *_args, **_kwargs: call(*tensors)


# Of one thread: weights that another thread makes meanwhile are drawn.
_is_loaded_later: ContextVar[Callable[[str], bool]] = ContextVar("is_loaded_later", default=lambda path: False)


@contextlib.contextmanager
def skip_random_initialization(is_loaded_later: Callable[[str], bool]) -> Iterator[None]:
    """Leaves weights at zero that a checkpoint will fill, since drawing 110 M numbers takes seconds.

    Args:
        is_loaded_later: Whether it fills the weight of a path, such as "encoder/layer_0/attention/qkv/kernel".
    """
    token = _is_loaded_later.set(is_loaded_later)
    try:
        yield
    finally:
        _is_loaded_later.reset(token)


@keras.saving.register_keras_serializable("bertzoo")
class HostTruncatedNormal(keras.initializers.Initializer):
    """A normal distribution of mean 0, cut at two standard deviations, as BERT's (google-research/bert, modeling.py).

    The numbers are drawn on the host, the same for every backend, and do not depend on the order in which weights are
    made.

    Args:
        stddev: Standard deviation of the distribution before it is cut.
        name: The weight's path; two weights of one seed and name are equal.
        seed: That of `bertzoo.set_seed` where None.
    """

    def __init__(self, stddev: float = 0.02, name: str = "", seed: int | None = None):
        self.stddev, self.name = stddev, name
        self.seed = get_seed() if seed is None else seed

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Tensor:
        if _is_loaded_later.get()(self.name):
            # From the host: JAX would compile a program for the zeros of each shape.
            return keras.ops.convert_to_tensor(np.zeros(shape, dtype="float32"), dtype=dtype)
        generator = numpy_generator(self.seed, self.name)
        values = generator.standard_normal(shape, dtype=np.float32)
        while (outside := np.abs(values) > 2).any():
            values[outside] = generator.standard_normal(int(outside.sum()), dtype=np.float32)
        return keras.ops.convert_to_tensor(values * np.float32(self.stddev), dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        return {"stddev": self.stddev, "name": self.name, "seed": self.seed}


def build_dense(parent: keras.layers.Layer, dense: keras.layers.Layer, input_size: int, stddev: float) -> None:
    """Builds a Dense or Conv1D layer of a parent that is being built, with initial weights named after its path."""
    dense.kernel_initializer = HostTruncatedNormal(stddev, f"{parent.path}/{dense.name}/kernel")
    dense.build((None, None, input_size))
