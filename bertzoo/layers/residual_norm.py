"""What ends both halves of a post-LN block."""

import keras
from keras import ops

from bertzoo.accelerator import ampere_or_later
from bertzoo.layers.dropout import dropout
from bertzoo.layers.layer_norm import LayerNorm
from bertzoo.layers.linear import is_plain, linear
from bertzoo.random import fold, row_words


def residual_norm(norm: LayerNorm, dense: keras.layers.Layer, x, residual, rate: float, key, site: int):
    """norm(residual + dropout(dense(x), rate, key, site)).

    x is (batch, length, in); the residual and the result are (batch, length, out).
    """
    if keras.backend.backend() == "jax" and is_plain(dense) and dense.use_bias and _one_gpu():
        from bertzoo.layers.fused_residual import fits, fused_residual_norm  # needs JAX

        batch, length, width = residual.shape
        if fits(batch * length, width):
            rate = 0.0 if key is None else rate
            words = row_words(fold(key, site), (batch, length)) if rate else ()
            product = ops.matmul(x, ops.convert_to_tensor(dense.kernel))
            normed = fused_residual_norm(
                ops.reshape(product, (-1, width)),
                ops.convert_to_tensor(dense.bias),
                ops.reshape(residual, (-1, width)),
                ops.convert_to_tensor(norm.gamma),
                ops.convert_to_tensor(norm.beta),
                tuple(ops.reshape(word, (-1,)) for word in words),
                rate,
                norm.epsilon,
            )
            return ops.reshape(normed, residual.shape)
    return norm(residual + dropout(linear(dense, x), rate, key, site))


def _one_gpu() -> bool:
    """Whether JAX computes on one GPU that has the kernels: arrays that lie on several it can't hand to them."""
    return ampere_or_later() and keras.distribution.distribution() is None
