"""Faster forms for JAX: cuDNN's attention, the exact GELU, the GPU kernels of this package, blocks traced once.

The kernels' modules import Triton, which is slow to import and not in every version of JAX, so they are imported where
they are used.
"""

import functools
import math
from collections.abc import Callable, Hashable
from numbers import Number
from types import FunctionType

import jax
import jax.numpy as jnp
import keras
from keras import ops

from bertzoo import dispatch
from bertzoo._keras_hooks import flatten_layers, is_jax_tracer, without_autocast
from bertzoo.backend import has_ampere_gpu_or_later
from bertzoo.dispatch import register_faster_form
from bertzoo.kernels.blockwise_attention import SHORTEST, blockwise_attention
from bertzoo.kernels.general import bias_in_stored_dtype, is_plain_dense, is_plain_dense_for_dtype_of
from bertzoo.kernels.pallas import kernel_rows_per_device, shard_over_devices
from bertzoo.layers import block, functional
from bertzoo.layers.attention import AttentionMask, SelfAttention, as_attention_mask, dot_product_attention
from bertzoo.layers.local_attention import has_key_mask, local_attention, text_ids_of
from bertzoo.random import TokenKey, fold_in
from bertzoo.types import Tensor

HALF = ("bfloat16", "float16")

# Φ(-u) / exp(-u²/2) from 0 to LAST, to 1e-4 of it: the coefficients of u⁰, u¹, … A fit of this library's own, with the
# first held at a half.
RATIO = (0.5, -0.3981987, 0.2448009, -0.11966196, 0.044656806, -0.01187678, 0.0020713469, -0.00020938211, 9.227355e-06)
LAST = 4.5


@register_faster_form(dot_product_attention, backend="jax")
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: AttentionMask | None = None,
    bias: Tensor | None = None,
    cross: bool = False,
) -> Tensor | None:
    """JAX's fused attention, cuDNN's where it supports these heads."""
    if not _has_kernel(query):
        return None
    if bias is None and not cross and has_key_mask(attention_mask):
        if _is_long(query):
            return blockwise_attention(query, key, value, text_ids_of(query, attention_mask))
        if attention_mask is not None and attention_mask.text_ids is not None and _has_row_kernel(query):
            return _attention_in_rows(query, key, value, attention_mask.text_ids)
    if attention_mask is None:
        return ops.dot_product_attention(query, key, value, bias=bias)
    if attention_mask.lengths is not None and _has_cudnn(query):
        return _cudnn_attention(query, key, value, attention_mask.lengths, bias, cross)
    # cuDNN's kernel does not broadcast masks.
    mask = ops.broadcast_to(attention_mask.mask, (query.shape[0], 1, query.shape[1], key.shape[1]))
    return ops.dot_product_attention(query, key, value, bias=bias, mask=mask)


def _has_kernel(query) -> bool:
    """Whether JAX's attention supports these queries: float16 only on GPUs, and no single query and no unknown sizes,
    since it may be cuDNN's."""
    known = all(isinstance(size, int) for size in query.shape[:2])
    return known and query.shape[1] != 1 and (query.dtype != "float16" or jax.default_backend() == "gpu")


def _is_long(query) -> bool:
    """Whether XLA would store so many scores on a CPU that computing them in blocks is faster."""
    return query.shape[1] >= SHORTEST and jax.default_backend() == "cpu"


def _has_row_kernel(query) -> bool:
    """Whether the kernel for rows of several texts supports these heads on this device."""
    if query.dtype not in HALF or kernel_rows_per_device(query.shape) is None:
        return False
    from bertzoo.kernels.row_attention import supports_shape

    return supports_shape(query.shape[1], query.shape[-1])


def _attention_in_rows(query, key, value, text_ids, window: int | None = None):
    from bertzoo.kernels.row_attention import row_attention

    batch, length, heads, size = query.shape
    product = jnp.stack([query, key, value], axis=2).reshape(batch, length, 3 * heads * size)
    bias = jnp.zeros((3 * heads * size,), query.dtype)
    call = shard_over_devices(
        lambda product, bias, text_ids: row_attention(product, bias, text_ids, heads, window), (True, False, True)
    )
    return call(product, bias, text_ids).reshape(query.shape)


@register_faster_form(local_attention, backend="jax")
def _local_attention(
    query: Tensor, key: Tensor, value: Tensor, window: int, attention_mask: AttentionMask | None = None
) -> Tensor | None:
    """One kernel, which visits the keys within reach alone."""
    if not _has_row_kernel(query):
        return None
    return _attention_in_rows(query, key, value, text_ids_of(query, attention_mask), window)


def _has_cudnn(query) -> bool:
    """Whether cuDNN's fused kernel supports these heads on this device."""
    size = query.shape[-1]
    return query.dtype in HALF and size % 8 == 0 and size <= 128 and has_ampere_gpu_or_later()


def _cudnn_attention(query, key, value, lengths, bias, cross):
    """With the examples' lengths cuDNN skips padding and reads no mask: 4 % of a training step of BERT-base on an
    H200."""
    queries = query.shape[1]
    odd, odd_keys = queries % 2, key.shape[1] % 2  # it has no gradient for odd lengths
    if odd:
        query = ops.pad(query, ((0, 0), (0, 1), (0, 0), (0, 0)))
    if odd_keys:
        key, value = (ops.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) for x in (key, value))
    if bias is not None:
        bias = ops.pad(ops.cast(bias, query.dtype), ((0, 0), (0, 0), (0, odd), (0, odd_keys)))
    out = jax.nn.dot_product_attention(
        query,
        key,
        value,
        bias,
        query_seq_lengths=ops.full_like(lengths, queries) if cross else lengths,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return out[:, :queries]


@jax.custom_vjp
def _gelu(x: Tensor) -> Tensor:
    """x Φ(x), with Φ the normal distribution's function (Hendrycks and Gimpel 2016): same shape as x.

    JAX's own form computes erfc, which costs twice as much, and stores for its gradient what can be recomputed from x:
    a tenth of a training step of BERT-base on a GPU, and a quarter of its memory. In half precision a polynomial is
    faster than erf; its error is a tenth of the rounding error, and below 1e-6 for x < -4.5, where the value is nearly
    0.
    """
    wide = x.astype(jnp.float32)
    value = gelu_half_precision(wide) if x.dtype in HALF else wide * _normal(wide)
    return value.astype(x.dtype)


def _kept(x):
    return _gelu(x), x


def _gradient(x, gradient):
    wide = x.astype(jnp.float32)
    if x.dtype in HALF:
        slope = gelu_derivative_half_precision(wide)
    else:
        slope = _normal(wide) + wide * _bell(wide) * (1.0 / math.sqrt(2.0 * math.pi))
    return ((gradient.astype(jnp.float32) * slope).astype(x.dtype),)


_gelu.defvjp(_kept, _gradient)
register_faster_form(functional.gelu, backend="jax")(_gelu)


def gelu_half_precision(x: Tensor) -> Tensor:
    """gelu(x) in float32, with the accuracy that half precision needs."""
    size = jnp.minimum(jnp.abs(x), LAST)
    return jnp.maximum(x, 0.0) - size * _bell(x) * _polynomial(RATIO, size)


def gelu_derivative_half_precision(x: Tensor) -> Tensor:
    """The derivative of gelu, likewise."""
    constant, linear, *others = (-factor for factor in RATIO)
    coefficients = constant, linear + 1.0 / math.sqrt(2.0 * math.pi), *others
    beyond = _bell(x) * _polynomial(coefficients, jnp.minimum(jnp.abs(x), LAST))
    return jnp.where(x < 0.0, -beyond, 1.0 + beyond)


def _bell(x):
    return jnp.exp(-0.5 * x * x)


def _polynomial(coefficients, x):
    total = coefficients[-1]
    for factor in coefficients[-2::-1]:
        total = total * x + factor
    return total


def _normal(x):
    return 0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5))


def _rows(dense: keras.layers.Layer, x: Tensor) -> int | None:
    """The rows of x on each device, if the kernels can replace what follows the product of this layer; else None."""
    return kernel_rows_per_device(x.shape) if is_plain_dense_for_dtype_of(dense, x) and dense.use_bias else None


@register_faster_form(SelfAttention.compute_context, backend="jax")
def _fused_context(
    layer: SelfAttention,
    x: Tensor,
    attention_mask: AttentionMask | Tensor | None,
    position_bias: Tensor | None,
    key: Tensor | None,
    return_attention: bool,
    query: Tensor | None,
) -> tuple[Tensor, None] | None:
    """Attention over short rows, or over rows of several texts, in one kernel."""
    mask, qkv = as_attention_mask(attention_mask), layer.qkv
    if return_attention or (key is not None and layer.attention_dropout > 0):
        return None  # the kernel does not store the weights
    if not layer.splits_projection or query is not None or position_bias is not None:
        return None
    if x.dtype not in HALF or _rows(qkv, x) is None:
        return None
    from bertzoo.kernels import row_attention, short_attention

    text_ids, shape = _text_ids(mask, x.shape[:2]), (x.shape[1], layer.hidden_size // layer.num_heads)
    if text_ids is not None and short_attention.supports_shape(*shape):
        kernel = short_attention.short_attention
    elif mask is not None and mask.text_ids is not None and row_attention.supports_shape(*shape):
        kernel = row_attention.row_attention
    else:
        return None
    product = ops.matmul(x, ops.convert_to_tensor(qkv.kernel))
    call = shard_over_devices(
        lambda product, bias, text_ids: kernel(product, bias, text_ids, layer.num_heads), (True, False, True)
    )
    return call(product, bias_in_stored_dtype(qkv), text_ids), None


def _text_ids(mask: AttentionMask | None, shape: tuple[int, int]) -> Tensor | None:
    """The text of each token of (batch, length), int32, where tokens attend to all of their text; else None."""
    if mask is None:
        return jax.numpy.zeros(shape, "int32")
    if mask.text_ids is not None or mask.lengths is None:
        return mask.text_ids
    return ops.where(jax.lax.broadcasted_iota("int32", shape, 1) < mask.lengths[:, None], 0, -1)


@register_faster_form(functional.lookup_positions, backend="jax")
def _lookup_positions(table: Tensor, position_ids: Tensor, compute_dtype: str) -> Tensor | None:
    """With the gradient as a product: a look-up's adds all tokens of a batch to a few rows, one after another."""
    if jax.default_backend() != "gpu":
        return None
    return _lookup_with_product(jnp.asarray(table), position_ids, compute_dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _lookup_with_product(table, row_indices, compute_dtype):
    return table[row_indices]


def _looked_up(table, row_indices, compute_dtype):
    return table[row_indices], (row_indices, table.shape[0])


def _product_gradient(compute_dtype, kept, gradient):
    row_indices, count = kept
    rows = gradient.reshape(-1, gradient.shape[-1]).astype(compute_dtype)
    is_row = (jnp.arange(count)[:, None] == row_indices.reshape(-1)[None, :]).astype(compute_dtype)
    table = jnp.matmul(is_row, rows, precision="highest", preferred_element_type="float32")
    return table.astype(gradient.dtype), None


_lookup_with_product.defvjp(_looked_up, _product_gradient)


@register_faster_form(functional.dense_then_activation, backend="jax")
def _dense_gelu(dense: keras.layers.Layer, name: str, x: Tensor) -> Tensor | None:
    rows = _rows(dense, x) if x.dtype in HALF and functional.activation(name) is functional.gelu else None
    if rows is None:
        return None
    from bertzoo.kernels.bias_gelu import bias_gelu_kernel, supports_shape

    if not supports_shape(rows, dense.units):
        return None
    product = ops.matmul(x, ops.convert_to_tensor(dense.kernel))
    return shard_over_devices(bias_gelu_kernel, (True, False))(product, bias_in_stored_dtype(dense))


@register_faster_form(block.residual_norm, backend="jax")
def _residual_norm(
    norm: functional.LayerNorm,
    dense: keras.layers.Layer,
    x: Tensor,
    residual: Tensor,
    rate: float,
    key: Tensor | None,
    salt: int,
) -> Tensor | None:
    if x.dtype != residual.dtype or _rows(dense, x) is None:
        return None
    from bertzoo.kernels.residual_norm import residual_norm_kernel, supports_width

    width = residual.shape[-1]
    if not supports_width(width):
        return None
    rate = 0.0 if key is None else rate
    dropped = _key_and_indices(fold_in(key, salt), residual.shape[:2]) if rate else ()
    call = shard_over_devices(
        lambda product, bias, residual, gamma, beta, *dropped: residual_norm_kernel(
            product, bias, residual, gamma, beta, dropped, rate, norm.epsilon
        ),
        (True, False, True, False, False, *(False, True, True)[: len(dropped)]),
    )
    normed = call(
        ops.reshape(ops.matmul(x, ops.convert_to_tensor(dense.kernel)), (-1, width)),
        bias_in_stored_dtype(dense),
        ops.reshape(residual, (-1, width)),
        ops.convert_to_tensor(norm.gamma),
        ops.convert_to_tensor(norm.beta),
        *dropped,
    )
    return ops.reshape(normed, residual.shape)


def _key_and_indices(key: Tensor | TokenKey, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """A dropout key, and the text and the position of each token of (batch, length), flattened; of the whole batch, on
    whatever device."""
    if not isinstance(key, TokenKey):
        key = TokenKey(key, *(jax.lax.broadcasted_iota("int32", shape, axis) for axis in range(2)))
    return key.key, ops.reshape(key.text_ids, (-1,)), ops.reshape(key.position_ids, (-1,))


# ---- calls of blocks

WRAPPED = {"build", "quantize"}  # methods that Keras wraps in each instance
SETTINGS = (Number, str, tuple, FunctionType, type(None))


@register_faster_form(dispatch.make_block_caller, backend="jax")
def _make_block_caller() -> Callable | None:
    """Traces identical blocks once. Tracing is most of the start of a step that is in the compilation cache; for 12
    identical blocks it takes half as long. XLA inlines the calls and sees the same operations."""
    if not is_jax_tracer(jax.numpy.zeros(())):  # outside of `jit` each call would be compiled
        return None
    traced: dict[Hashable, Callable] = {}

    def call(block, x, **options):
        form = _form(block)
        if form is None:
            return dispatch.call_block(block, x, **options)
        if form not in traced:
            traced[form] = jax.jit(_with_weights(block))
        with without_autocast():  # as they are stored: layers cast those that they use in half precision
            values = [variable.value for variable in block.variables]
        return traced[form](values, x, options)

    return call


def _with_weights(block) -> Callable:
    """The block's call as a function of its weights and its inputs."""
    variables = block.variables

    def call(values, x, options):
        with without_autocast():  # the scope would cast the values
            scope = keras.StatelessScope(state_mapping=list(zip(variables, values)))
        with scope:
            return dispatch.call_block(block, x, **options)

    return call


def _form(block) -> Hashable | None:
    """Everything that defines a block except its weights' values; None if a call may have side effects."""
    layers = flatten_layers(block)
    if not all(map(_only_computes, layers)):
        return None
    variables = tuple((variable.name, variable.shape, variable.dtype) for variable in block.variables)
    # A map of dtype policies has one name for all layers.
    types = ((layer.dtype_policy.name, layer.compute_dtype) for layer in layers)
    return variables, tuple((type(layer), *dtypes, _attributes(layer)) for layer, dtypes in zip(layers, types))


def _only_computes(layer) -> bool:
    """Whether a layer adds no loss, is not quantized, and has no method replaced on the instance."""
    plain = is_plain_dense(layer) or not isinstance(layer, keras.layers.Dense)
    own = {name for name, value in vars(layer).items() if callable(value) and hasattr(type(layer), name)}
    return plain and layer.activity_regularizer is None and own <= WRAPPED


def _attributes(layer) -> Hashable:
    """The public attributes that are numbers, strings, tuples or functions."""
    kept = (name for name in vars(layer) if name[0] != "_" and name not in (*WRAPPED, "name"))
    values = ((name, getattr(layer, name)) for name in kept)
    return frozenset((name, repr(value)) for name, value in values if isinstance(value, SETTINGS))
