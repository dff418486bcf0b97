"""Attention over short sequences in one kernel, from the fused projection to the context: JAX on a GPU.

cuDNN's kernels need separate queries, keys and values. XLA splits the projection, concatenates the gradients and sums
them for the bias, which takes half as long as attention itself.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bertzoo.kernels.pallas import make_kernel_call
from bertzoo.layers.attention import MASKED

LONGEST = 128  # a program holds all scores of a head
SHORTEST = 16  # Triton multiplies no smaller matrices
QUERIES = 32  # per iteration of the backward pass
QUERY, KEY, VALUE = map(np.int32, range(3))


def supports_shape(length: int, head_size: int) -> bool:
    """Whether the kernels support this shape."""
    return length <= LONGEST and head_size in (16, 32, 64, 128)


# Tracing and lowering a kernel takes 50 ms, and a model calls it dozens of times.
@functools.partial(jax.jit, static_argnums=(3,))
def short_attention(product, bias, text_ids, num_heads: int):
    """softmax(q·k / √head size)·v of (q, k, v) = product + bias.

    Args:
        product: (batch, length, 3 * hidden): queries, keys and values, each with its heads side by side.
        bias: (3 * hidden,).
        text_ids: int32 (batch, length), the text of each token; tokens attend to those of their text.
        num_heads: Number of heads.

    Returns:
        (batch, length, hidden).
    """
    return _attention(product, bias, text_ids, num_heads)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attention(product, bias, text_ids, num_heads):
    return _forward(product, bias, text_ids, num_heads)[0]


def _forward(product, bias, text_ids, num_heads):
    """The context, and the base-2 logarithm of the sum of each query's exponentials."""
    batch, length, size = _shape(product, num_heads)
    rows = _rows(length)

    def kernel(product, bias, text_ids, context, logarithm):
        (query, real), (key, _), (value, _) = (_load(product, bias, i, 0, length) for i in (QUERY, KEY, VALUE))
        scores = triton.dot(query, key, trans_b=True) * _scale(size)
        texts = _load_text_ids(text_ids, 0, rows, length)
        scores = jnp.where(texts[:, None] == texts[None, :], scores, MASKED)
        highest = jnp.max(scores, axis=1)
        exponentials = jnp.exp2(scores - highest[:, None])
        total = jnp.sum(exponentials, axis=1)
        mean = triton.dot(exponentials.astype(value.dtype), value) * (1.0 / total)[:, None]
        triton.store(context, mean.astype(context.dtype), mask=real)
        triton.store(logarithm, highest + jnp.log2(total))

    outs = (
        jax.ShapeDtypeStruct((batch, length, num_heads, size), product.dtype),
        jax.ShapeDtypeStruct((batch, num_heads, rows), jnp.float32),
    )
    arrays, specs = _operands(product, bias, text_ids, num_heads)
    specs = {"in_specs": specs, "out_specs": (_head(rows, size), _queries(rows))}
    call = make_kernel_call(kernel, outs, (batch, num_heads), 8 if rows > 64 else 4, "short_attention", **specs)
    context, logarithm = call(*arrays)
    return context.reshape(batch, length, num_heads * size), logarithm


def _kept(product, bias, text_ids, num_heads):
    context, logarithm = _forward(product, bias, text_ids, num_heads)
    return context, (product, bias, text_ids, logarithm)


@functools.partial(jax.jit, static_argnums=(0,))
def _backward(num_heads, kept, gradient):
    product, bias, text_ids, logarithm = kept
    batch, length, size = _shape(product, num_heads)
    rows = _rows(length)
    block = min(QUERIES, rows)

    def kernel(product, bias, text_ids, logarithm, gradient, d_product, d_bias):
        (key, real), (value, _) = (_load(product, bias, projection, 0, length) for projection in (KEY, VALUE))
        texts = _load_text_ids(text_ids, 0, rows, length)

        def queries(i, totals):
            """Adds a block of queries to the gradients of keys and values; scores have a row for each key."""
            d_key, d_value, d_query_bias = totals
            here = pl.ds(i * block, block)
            query, real = _load(product, bias, QUERY, i * block, length, block)
            outer = triton.load(gradient.at[here, :], mask=real, other=0.0)
            scores = triton.dot(key, query, trans_b=True) * _scale(size) - triton.load(logarithm.at[here])[None, :]
            present = texts[:, None] == _load_text_ids(text_ids, i * block, block, length)[None, :]
            weights = jnp.where(present, jnp.exp2(scores), 0.0)
            d_value += triton.dot(weights.astype(outer.dtype), outer)
            slope = triton.dot(value, outer, trans_b=True)
            mean = jnp.sum(weights * slope, axis=0, keepdims=True)
            d_scores = (weights * (slope - mean) * (1.0 / math.sqrt(size))).astype(key.dtype)
            d_key += triton.dot(d_scores, query)
            # Transposed, so that it has enough rows for the matrix units of an H100.
            d_query = triton.dot(key, d_scores, trans_a=True)
            triton.store(d_product.at[here, QUERY, :], d_query.T.astype(d_product.dtype), mask=real)
            return d_key, d_value, d_query_bias + jnp.sum(d_query, axis=1)

        zeros = jnp.zeros((rows, size), jnp.float32)
        totals = zeros, zeros, jnp.zeros((size,), jnp.float32)
        d_key, d_value, d_query_bias = jax.lax.fori_loop(0, rows // block, queries, totals)
        triton.store(d_bias.at[QUERY, :], d_query_bias)
        for projection, d_projection in ((KEY, d_key), (VALUE, d_value)):
            triton.store(d_product.at[:, projection, :], d_projection.astype(d_product.dtype), mask=real)
            triton.store(d_bias.at[projection, :], jnp.sum(d_projection, axis=0))

    arrays, specs = _operands(product, bias, text_ids, num_heads)
    outs = (
        jax.ShapeDtypeStruct(arrays[0].shape, product.dtype),
        jax.ShapeDtypeStruct((batch, 3, num_heads, size), jnp.float32),
    )
    biases = pl.BlockSpec((None, 3, None, size), lambda b, h: (b, 0, h, 0))
    specs = {"in_specs": (*specs, _queries(rows), _head(rows, size)), "out_specs": (specs[0], biases)}
    call = make_kernel_call(kernel, outs, (batch, num_heads), 4, "short_attention_gradient", num_stages=3, **specs)
    d_product, d_bias = call(*arrays, logarithm, gradient.reshape(batch, length, num_heads, size))
    return d_product.reshape(product.shape), jnp.sum(d_bias, axis=0).reshape(bias.shape).astype(bias.dtype), None


_attention.defvjp(_kept, _backward)


def _shape(product, num_heads: int) -> tuple[int, int, int]:
    """Batch, length and head size."""
    batch, length, width = product.shape
    return batch, length, width // (3 * num_heads)


def _rows(length: int) -> int:
    """The rows of a program; those beyond the length are read as zeros and not written."""
    return max(SHORTEST, pl.next_power_of_2(length))


def _scale(size: int) -> float:
    """The factor from products to scores, for exponentials to base 2."""
    return math.log2(math.e) / math.sqrt(size)


def _operands(product, bias, text_ids, num_heads: int):
    """The inputs of both kernels, and the block that a program sees: a head of an example."""
    batch, length, size = _shape(product, num_heads)
    arrays = product.reshape(batch, length, 3, num_heads, size), bias.reshape(3, num_heads, size), text_ids
    specs = (
        pl.BlockSpec((None, _rows(length), 3, None, size), lambda b, h: (b, 0, 0, h, 0)),
        pl.BlockSpec((3, None, size), lambda b, h: (0, h, 0)),
        pl.BlockSpec((None, _rows(length)), lambda b, h: (b, 0)),
    )
    return arrays, specs


def _head(rows: int, size: int) -> pl.BlockSpec:
    """The block of an array (batch, length, heads, size)."""
    return pl.BlockSpec((None, rows, None, size), lambda b, h: (b, 0, h, 0))


def _queries(rows: int) -> pl.BlockSpec:
    """The block of an array (batch, heads, rows)."""
    return pl.BlockSpec((None, None, rows), lambda b, h: (b, h, 0))


def _load_text_ids(text_ids, first, count: int, length: int):
    """The texts of `count` rows from `first` on; -2 for those beyond the length."""
    real = jax.lax.broadcasted_iota(jnp.int32, (count,), 0) + first < length
    return triton.load(text_ids.at[pl.ds(first, count)], mask=real, other=-2)


def _load(product, bias, projection, first, length: int, count: int | None = None):
    """`count` rows from `first` on, or all, of queries, keys or values, and the mask of those within the length."""
    count = product.shape[0] if count is None else count
    real = jax.lax.broadcasted_iota(jnp.int32, (count, product.shape[2]), 0) + first < length
    loaded = triton.load(product.at[pl.ds(first, count), projection, :], mask=real, other=0.0).astype(jnp.float32)
    return (loaded + triton.load(bias.at[projection, :]).astype(jnp.float32)[None, :]).astype(product.dtype), real
