"""Faster forms in Keras's operations, or in one operation of PyTorch."""

from functools import cache

import keras
from keras import ops

from bertzoo._keras_hooks import without_autocast
from bertzoo.backend import accelerator_name
from bertzoo.dispatch import register_faster_form
from bertzoo.layers import functional
from bertzoo.layers.attention import AttentionMask, dot_product_attention
from bertzoo.layers.deberta import relative_position_scores
from bertzoo.layers.lstm import lstm
from bertzoo.types import Tensor


def is_plain_dense(dense: keras.layers.Layer) -> bool:
    """Whether a layer is Keras's Dense without LoRA wrapper or quantization."""
    return type(dense) is keras.layers.Dense and dense.quantization_mode is None


def is_plain_dense_for_dtype_of(dense: keras.layers.Layer, x: Tensor) -> bool:
    """Whether it is plain and computes in the dtype of x, which a map of dtype policies may change."""
    return is_plain_dense(dense) and dense.compute_dtype == keras.backend.standardize_dtype(x.dtype)


def bias_in_stored_dtype(dense: keras.layers.Layer) -> Tensor:
    """The bias in the dtype in which it is stored, for kernels that cast it themselves."""
    with without_autocast():
        return ops.convert_to_tensor(dense.bias)


@register_faster_form(functional.apply_dense)
def _linear(dense: keras.layers.Layer, x: Tensor, columns: slice | None = None) -> Tensor | None:
    """On PyTorch, product and bias in one operation instead of Keras's two. Elsewhere only the given columns."""
    on_torch = keras.backend.backend() == "torch"
    if not (on_torch or columns is not None) or not is_plain_dense_for_dtype_of(dense, x):
        return None
    kernel = ops.convert_to_tensor(dense.kernel)
    if kernel.dtype != x.dtype:  # outside a layer that casts
        return None
    bias = None if dense.bias is None else ops.convert_to_tensor(dense.bias)
    if columns is not None:
        kernel, bias = kernel[:, columns], None if bias is None else bias[columns]
    if on_torch:
        import torch

        return torch.nn.functional.linear(x, kernel.t(), bias)
    product = ops.matmul(x, kernel)
    return product if bias is None else product + bias


@register_faster_form(functional.layer_norm)
def _layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor | None:
    """PyTorch's fused kernel; elsewhere, in half precision, one pass over memory."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    if keras.backend.backend() == "torch":
        # The fused kernel needs gamma and beta in the dtype of x.
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


# Evaluated once: PyTorch would compile the query into each call. JAX selects its devices at the first query.
_on_accelerator = cache(lambda: accelerator_name() is not None)
_torch_on_accelerator = keras.backend.backend() == "torch" and _on_accelerator()


@register_faster_form(relative_position_scores)
def _distance_bias_heads_first(
    query: Tensor, key: Tensor, position_query: Tensor | None, position_key: Tensor | None, axes: str = "bh"
) -> Tensor | None:
    """On accelerators, whose products have heads first. Transposing each product takes twice as long as transposing
    their sum. On a CPU XLA is 10 % faster with examples first."""
    on_accelerator = _torch_on_accelerator if keras.backend.backend() == "torch" else _on_accelerator()
    if axes != "bh" or not on_accelerator:
        return None
    return ops.transpose(relative_position_scores(query, key, position_query, position_key, "hb"), (1, 0, 2, 3))


@register_faster_form(dot_product_attention, backend="torch")
def _torch_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: AttentionMask | None = None,
    bias: Tensor | None = None,
    cross: bool = False,
) -> Tensor:
    """PyTorch's fused attention, with one additive mask, and views where `keras.ops.dot_product_attention` copies."""
    import torch

    mask = None if bias is None else bias.to(query.dtype)
    if attention_mask is not None:
        hidden = ~attention_mask.mask
        mask = torch.zeros_like(hidden, dtype=query.dtype) if mask is None else mask
        # A score is added to it, which must not overflow in float16.
        mask = mask.masked_fill(hidden, torch.finfo(query.dtype).min / 2)
    query, key, value = (heads.transpose(1, 2) for heads in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)


@register_faster_form(lstm, backend="torch")
def _lstm(x: Tensor, kernel: Tensor, recurrent_kernel: Tensor, bias: Tensor) -> Tensor | None:
    """PyTorch's own LSTM, in place of a step at a time."""
    import torch

    if torch.compiler.is_compiling():  # which can't trace it
        return None
    outputs = []
    for rows, *weights, added in zip(x, kernel, recurrent_kernel, bias):
        start = rows.new_zeros(1, len(rows), recurrent_kernel.shape[1])
        parameters = [*(weight.t().contiguous() for weight in weights), added, torch.zeros_like(added)]
        trains = torch.is_grad_enabled()  # cuDNN keeps what the backward pass needs only then
        outputs.append(torch.lstm(rows, (start, start), parameters, True, 1, 0.0, trains, False, True)[0])
    return torch.stack(outputs)
