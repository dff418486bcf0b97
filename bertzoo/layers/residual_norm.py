"""What ends both halves of a post-LN block."""

import keras
from keras import ops

from bertzoo.layers.dropout import dropout
from bertzoo.layers.layer_norm import LayerNorm
from bertzoo.layers.linear import is_plain_for, kept_bias, linear
from bertzoo.random import fold_in


def residual_norm(norm: LayerNorm, dense: keras.layers.Layer, x, residual, rate: float, key, salt: int):
    """norm(residual + dropout(dense(x), rate, key, salt)).

    x is (batch, length, in); the residual and the result are (batch, length, out).
    """
    alike = keras.backend.backend() == "jax" and x.dtype == residual.dtype
    if alike and is_plain_for(dense, x) and dense.use_bias:
        normed = _in_one_kernel(norm, dense, x, residual, 0.0 if key is None else rate, key, salt)
        if normed is not None:
            return normed
    return norm(added(residual, dropout(linear(dense, x), rate, key, salt)))


def added(x, y):
    """x + y, which may be of different types where a map of dtype policies says so; TensorFlow's sum wants one type."""
    return x + y if x.dtype == y.dtype else ops.add(x, y)


def _in_one_kernel(norm, dense, x, residual, rate, key, salt):
    from bertzoo.kernels.pallas import on_each_device, rows_for_kernels  # needs JAX

    if rows_for_kernels(residual.shape) is None:
        return None
    from bertzoo.kernels.residual_norm import fits, fused_residual_norm  # needs Triton

    batch, _, width = residual.shape
    if not fits(width):
        return None
    # Numbers in the whole batch, whatever the devices: a mask depends on them.
    dropped = (fold_in(key, salt), ops.arange(batch, dtype="int32")) if rate else ()
    call = on_each_device(
        lambda *arrays: fused_residual_norm(*arrays[:5], arrays[5:], rate, norm.epsilon),
        (True, False, True, False, False, *(False, True)[: len(dropped)]),
    )
    normed = call(
        ops.reshape(ops.matmul(x, ops.convert_to_tensor(dense.kernel)), (-1, width)),
        kept_bias(dense),
        ops.reshape(residual, (-1, width)),
        ops.convert_to_tensor(norm.gamma),
        ops.convert_to_tensor(norm.beta),
        *dropped,
    )
    return ops.reshape(normed, residual.shape)
