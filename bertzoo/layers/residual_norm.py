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
    if keras.backend.backend() == "jax" and is_plain(dense) and dense.use_bias and _has_kernel():
        from bertzoo.layers.fused_residual import fits, fused_residual_norm  # needs JAX

        batch, length, width = residual.shape
        distribution = keras.distribution.distribution()
        mesh = None if distribution is None else distribution.device_mesh.backend_mesh
        devices = 1 if mesh is None else mesh.size
        if batch % devices == 0 and fits(batch // devices * length, width):
            rate = 0.0 if key is None else rate
            # Of the whole batch, whatever the devices: a mask depends on the example's number in it.
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
                mesh,
            )
            return ops.reshape(normed, residual.shape)
    return norm(residual + dropout(linear(dense, x), rate, key, site))


def _has_kernel() -> bool:
    """Whether JAX computes on GPUs that have the kernel, with whole examples and all weights on each."""
    distribution = keras.distribution.distribution()
    return ampere_or_later() and (distribution is None or isinstance(distribution, keras.distribution.DataParallel))
