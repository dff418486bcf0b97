"""Dropout, layer normalisation, and the residual sum between them."""

import keras
from keras import ops

from bertzoo.dispatch import operation
from bertzoo.layers.base import Layer
from bertzoo.layers.dense import linear
from bertzoo.random import fold_in, random_bits
from bertzoo.types import Tensor


def dropout(x: Tensor, rate: float, key: Tensor | None, salt: int = 0) -> Tensor:
    """Sets a share `rate` of the elements of x to 0 and scales the others by 1 / (1 - rate); same shape as x.

    The mask is a hash of the key and each element's indices, so it is the same on every backend.

    Args:
        x: Float tensor (example, …, channel), two axes or more.
        rate: Share to drop, from 0 up to but not including 1.
        key: int32 tensor (2,), or None for no dropout (inference).
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


@operation
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
    """(…, width) -> (…, width): `layer_norm` with a scale `gamma` and, with `center`, a shift `beta`."""

    def __init__(self, epsilon: float = 1e-12, center: bool = True, name: str = "norm", **kwargs):
        super().__init__(name=name, **kwargs)
        self.epsilon, self.center = epsilon, center
        self.beta = None

    def build(self, input_shape):
        width = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones", autocast=False)
        if self.center:
            self.beta = self.add_weight(name="beta", shape=width, initializer="zeros", autocast=False)

    def call(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.gamma, self.beta, self.epsilon)


@operation
def residual_norm(
    norm: LayerNorm, dense: keras.layers.Layer, x: Tensor, residual: Tensor, rate: float, key: Tensor | None, salt: int
) -> Tensor:
    """norm(residual + dropout(dense(x))), which ends both halves of a post-LN block.

    x is (batch, length, in); the residual and the result are (batch, length, out).
    """
    return norm(add(residual, dropout(linear(dense, x), rate, key, salt)))


def add(x: Tensor, y: Tensor) -> Tensor:
    """x + y, whose types may differ under a map of dtype policies; TensorFlow's `+` wants one type."""
    return x + y if x.dtype == y.dtype else ops.add(x, y)
