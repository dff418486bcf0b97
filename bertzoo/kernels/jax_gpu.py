"""Where the kernels of this package for JAX on a GPU enter.

Their modules need Triton, which is slow to import and not in every JAX, so they are imported where they are used.
"""

import keras
from keras import ops

from bertzoo.dispatch import faster
from bertzoo.kernels.general import is_plain_for, kept_bias
from bertzoo.kernels.pallas import on_each_device, rows_for_kernels
from bertzoo.layers.attention import AttentionMask
from bertzoo.layers.dense import activation, gelu
from bertzoo.layers.norm import LayerNorm
from bertzoo.random import fold_in
from bertzoo.types import Tensor

HALF = ("bfloat16", "float16")


@faster("self_attention", backend="jax")
def self_attention(
    qkv: keras.layers.Layer, x: Tensor, attention_mask: AttentionMask | None, num_heads: int
) -> Tensor | None:
    known = attention_mask is None or attention_mask.lengths is not None
    if not (known and x.dtype in HALF and is_plain_for(qkv, x) and qkv.use_bias):
        return None
    if rows_for_kernels(x.shape) is None:
        return None
    from bertzoo.kernels.short_attention import fits, short_attention

    batch, length, _ = x.shape
    if not fits(length, qkv.units // (3 * num_heads)):
        return None
    lengths = ops.full((batch,), length, "int32") if attention_mask is None else attention_mask.lengths
    product = ops.matmul(x, ops.convert_to_tensor(qkv.kernel))
    call = on_each_device(lambda *arrays: short_attention(*arrays, num_heads), (True, False, True))
    return call(product, kept_bias(qkv), lengths)


@faster("dense_activation", backend="jax")
def dense_gelu(dense: keras.layers.Layer, name: str, x: Tensor) -> Tensor | None:
    if activation(name) is not gelu or not is_plain_for(dense, x) or not dense.use_bias:
        return None
    rows = rows_for_kernels(x.shape) if x.dtype in HALF else None
    if rows is None:
        return None
    from bertzoo.kernels.bias_gelu import biased_gelu, fits

    if not fits(rows, dense.units):
        return None
    product = ops.matmul(x, ops.convert_to_tensor(dense.kernel))
    return on_each_device(biased_gelu, (True, False))(product, kept_bias(dense))


@faster("residual_norm", backend="jax")
def residual_norm(
    norm: LayerNorm, dense: keras.layers.Layer, x: Tensor, residual: Tensor, rate: float, key: Tensor | None, salt: int
) -> Tensor | None:
    if x.dtype != residual.dtype or not is_plain_for(dense, x) or not dense.use_bias:
        return None
    if rows_for_kernels(residual.shape) is None:
        return None
    from bertzoo.kernels.residual_norm import fits, fused_residual_norm

    batch, _, width = residual.shape
    if not fits(width):
        return None
    rate = 0.0 if key is None else rate
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
