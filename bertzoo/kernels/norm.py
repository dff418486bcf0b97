"""Layer normalisation in one kernel of PyTorch, and on other backends in one pass over memory."""

import keras
from keras import ops

from bertzoo.dispatch import faster
from bertzoo.layers import norm as _norm  # noqa: F401 (the operation)
from bertzoo.types import Tensor


@faster("layer_norm")
def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor | None:
    dtype = keras.backend.standardize_dtype(x.dtype)
    if keras.backend.backend() == "torch":
        # The fused kernel takes gamma and beta in the type of x only: rounded, where that is half.
        beta = None if beta is None else ops.cast(beta, dtype)
        return ops.layer_normalization(x, ops.cast(gamma, dtype), beta, epsilon=epsilon)
    if dtype not in ("bfloat16", "float16"):
        return None
    # One pass is exact enough for half-precision inputs and saves a twentieth of a training step; in float32 its
    # cancellation would show.
    x = ops.cast(x, "float32")
    mean = ops.mean(x, axis=-1, keepdims=True)
    variance = ops.maximum(ops.mean(ops.square(x), axis=-1, keepdims=True) - ops.square(mean), 0.0)
    x = (x - mean) * ops.rsqrt(variance + epsilon) * ops.cast(gamma, "float32")
    return ops.cast(x if beta is None else x + ops.cast(beta, "float32"), dtype)
