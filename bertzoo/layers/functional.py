"""Primitives of the layers: dropout, dense layers and activations, normalisation, look-ups."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bertzoo.backend import with_dense_gradient
from bertzoo.dispatch import dispatched_operation
from bertzoo.layers.base import Layer
from bertzoo.random import TokenKey, fold_in, random_bits
from bertzoo.types import Tensor


def dropout(x: Tensor, rate: float, key: Tensor | TokenKey | None, salt: int = 0) -> Tensor:
    """Sets a random fraction `rate` of the elements of x to 0 and scales the others by 1 / (1 - rate).

    The mask is a hash of the key and each element's indices, so it is the same on every backend.

    Args:
        x: Float tensor (batch, …, channels), two axes or more; the result has the same shape.
        rate: Fraction to drop, from 0 up to but not including 1.
        key: int32 tensor (2,), a TokenKey for x of packed rows, or None for no dropout (inference).
        salt: Distinguishes dropouts that share a key; see `bertzoo.random.Salt`.

    Raises:
        ValueError: The rate is out of its range.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"Expected a dropout rate of at least 0 and below 1. Received: {rate!r}.")
    if key is None or rate == 0:
        return x
    keep = random_bits(fold_in(key, salt), ops.shape(x)) >= round(rate * 2**32) - 2**31
    return ops.where(keep, x * (1.0 / (1.0 - rate)), ops.zeros((), x.dtype))


@dispatched_operation
def apply_dense(dense: keras.layers.Layer, x: Tensor, columns: slice | None = None) -> Tensor:
    """`dense(x)`, or these columns of it: (…, in) -> (…, out)."""
    out = dense(x)
    return out if columns is None else out[..., columns]


@dispatched_operation
def gelu(x: Tensor) -> Tensor:
    """x Φ(x), with Φ the normal distribution's function (Hendrycks and Gimpel 2016): same shape as x."""
    return ops.gelu(x, approximate=False)


def _gelu_tanh(x: Tensor) -> Tensor:
    return ops.gelu(x, approximate=True)


# By the names in Hugging Face's config.json. gelu_fast writes sqrt(2 / pi) with ten digits: the same float32 number.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_python": gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "relu": ops.relu,
    "silu": ops.silu,
    "swish": ops.silu,
    "tanh": ops.tanh,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function for a `hidden_act` of config.json; "gelu" is the exact one.

    Raises:
        ValueError: The name is unknown.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"Expected an activation of {', '.join(ACTIVATIONS)}. Received: {name!r}.")
    return ACTIVATIONS[name]


@dispatched_operation
def dense_then_activation(dense: keras.layers.Layer, activation_name: str, x: Tensor) -> Tensor:
    """The activation `activation_name` of `dense(x)`: (batch, length, in) -> (batch, length, out)."""
    return activation(activation_name)(apply_dense(dense, x))


@dispatched_operation
def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    """Mean 0 and variance 1 over the last axis, in float32 whatever the type of x; times gamma, plus beta (Ba et al.
    2016)."""
    wide = ops.cast(x, keras.backend.result_type(keras.backend.standardize_dtype(x.dtype), "float32"))
    wide = wide - ops.mean(wide, axis=-1, keepdims=True)
    wide = wide * ops.rsqrt(ops.mean(ops.square(wide), axis=-1, keepdims=True) + epsilon)
    wide = wide * ops.cast(gamma, wide.dtype)
    return ops.cast(wide if beta is None else wide + ops.cast(beta, wide.dtype), x.dtype)


@keras.saving.register_keras_serializable("bertzoo")
class LayerNorm(Layer):
    """(…, width) -> (…, width): `layer_norm` with a scale `gamma` and a shift `beta`.

    Args:
        epsilon: Added to the variance.
        center: Whether there is a `beta`.
        name: The layer's name.

    Example:
        >>> norm = bz.layers.LayerNorm()
        >>> [round(float(value), 3) for value in norm(np.array([[1.0, 3.0]]))[0]]
        [-1.0, 1.0]
    """

    def __init__(self, epsilon: float = 1e-12, center: bool = True, name: str = "norm", **kwargs):
        super().__init__(name=name, **kwargs)
        self.epsilon, self.center, self.beta = epsilon, center, None

    def build(self, input_shape: Any) -> None:
        width = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones", autocast=False)
        if self.center:
            self.beta = self.add_weight(name="beta", shape=width, initializer="zeros", autocast=False)

    def call(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.gamma, self.beta, self.epsilon)


@keras.saving.register_keras_serializable("bertzoo")
class RMSNorm(Layer):
    """(…, width) -> (…, width): x over the root of the mean of its squares, times a scale `gamma` (Zhang and Sennrich
    2019); in float32.

    Args:
        epsilon: Added to the mean of the squares.
        name: The layer's name.
    """

    def __init__(self, epsilon: float = 1e-5, name: str = "norm", **kwargs):
        super().__init__(name=name, **kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Any) -> None:
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer="ones", autocast=False)

    def call(self, x: Tensor) -> Tensor:
        wide = ops.cast(x, "float32")
        wide = wide * ops.rsqrt(ops.mean(ops.square(wide), axis=-1, keepdims=True) + self.epsilon)
        return ops.cast(wide * ops.cast(self.gamma, "float32"), x.dtype)


def add(x: Tensor, y: Tensor) -> Tensor:
    """x + y, whose types may differ under a map of dtype policies; TensorFlow's `+` wants one type."""
    return x + y if x.dtype == y.dtype else ops.add(x, y)


FIRST = "first"


def lookup_rows(table: Tensor, row_indices: Tensor) -> Tensor:
    """Rows of a table: (rows, width), int (…) -> (…, width)."""
    return ops.take(with_dense_gradient(ops.convert_to_tensor(table)), row_indices, axis=0)


@dispatched_operation
def lookup_positions(table: Tensor, position_ids: Tensor, compute_dtype: str) -> Tensor:
    """`lookup_rows` in a table of positions, a few rows of which all tokens share.

    Args:
        table, position_ids: As for `lookup_rows`.
        compute_dtype: What the sum of embeddings is cast to, so that the gradient has no more digits.
    """
    return lookup_rows(table, position_ids)


def lookup_in_small_table(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of a small table: (rows, width), int (…) -> (…, width), and NaN for ids out of range.

    The gradient of a look-up would add all tokens of a batch to the same one or two rows, one after another on a GPU;
    that of a selection is a sum.
    """
    rows, ids = ops.convert_to_tensor(table), ops.expand_dims(ids, -1)
    out = ops.full((), float("nan"), dtype=rows.dtype)
    for row in range(table.shape[0]):
        out = ops.where(ids == row, rows[row], out)
    return out


def gather_positions(x: Tensor, positions: Tensor | str) -> Tensor:
    """(batch, length, width) -> (batch, count, width): of the first token where `positions` is FIRST, else at these
    positions, int (batch, count)."""
    # `==` would compare an array element by element.
    return x[:, :1] if isinstance(positions, str) else ops.take_along_axis(x, positions[:, :, None], axis=1)
