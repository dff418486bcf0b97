"""Attention over rows of any length that hold several texts, from the fused projection to the context: JAX on a GPU.

A program computes a block of queries of one head and visits only the blocks of keys in which their texts lie, so that
the time grows with the squares of the texts' lengths, not of the row's, and with a window linearly. Scores are never
stored (Dao 2023, "FlashAttention-2").
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

BLOCK = 64  # tokens of a program, and those that it visits at a time: the fastest on an H200 of 32 to 128
WARPS, STAGES = 4, 3
QUERY, KEY, VALUE = map(np.int32, range(3))


def supports_shape(length: int, head_size: int) -> bool:
    """Whether the kernels support this shape."""
    return length >= BLOCK and head_size in (32, 64, 128)


@functools.partial(jax.jit, static_argnums=(3, 4))
def row_attention(product, bias, text_ids, num_heads: int, window: int | None = None):
    """softmax(q·k / √head size)·v of (q, k, v) = product + bias, within each text.

    Args:
        product: (rows, length, 3 * hidden): queries, keys and values, each with its heads side by side.
        bias: (3 * hidden,).
        text_ids: int32 (rows, length), the text of each token; those of a text stand side by side.
        num_heads: Number of heads.
        window: Tokens farther apart than this do not see each other; None for no limit.

    Returns:
        (rows, length, hidden).
    """
    return _attention(product, bias, text_ids, num_heads, window)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _attention(product, bias, text_ids, num_heads, window):
    return _forward(product, bias, text_ids, num_heads, window)[0]


def _forward(product, bias, text_ids, num_heads, window):
    """The context, and the base-2 logarithm of the sum of each query's exponentials."""
    product, bias, (rows, length, heads, size) = _by_head(product, bias, num_heads)

    def kernel(product, bias, text_ids, first, last, context, logarithm):
        row, head, block = (pl.program_id(axis) for axis in range(3))
        load = functools.partial(_load, product, bias, row, head)
        here = _Tokens(block, length)
        query = load(QUERY, here)

        def visit(step, carry):
            highest, total, mean = carry
            there = _Tokens(step, length)
            scores = triton.dot(query, load(KEY, there), trans_b=True) * _scale(size)
            scores = jnp.where(_present(text_ids, row, here, there, window), scores, MASKED)
            now = jnp.maximum(highest, jnp.max(scores, axis=1))
            exponentials, shrink = jnp.exp2(scores - now[:, None]), jnp.exp2(highest - now)
            value = load(VALUE, there)
            mean = mean * shrink[:, None] + triton.dot(exponentials.astype(value.dtype), value)
            return now, total * shrink + jnp.sum(exponentials, axis=1), mean

        begin, end = triton.load(first.at[row, block]), triton.load(last.at[row, block])
        start = jnp.full((BLOCK,), MASKED, jnp.float32), jnp.zeros((BLOCK,), jnp.float32)
        highest, total, mean = jax.lax.fori_loop(begin, end, visit, (*start, jnp.zeros((BLOCK, size), jnp.float32)))
        mean = (mean / total[:, None]).astype(context.dtype)
        triton.store(context.at[row, here.slice, head, :], mean, mask=here.real[:, None])
        triton.store(logarithm.at[row, head, here.slice], highest + jnp.log2(total), mask=here.real)

    outs = (
        jax.ShapeDtypeStruct((rows, length, heads, size), product.dtype),
        jax.ShapeDtypeStruct((rows, heads, length), jnp.float32),
    )
    grid = rows, heads, pl.cdiv(length, BLOCK)
    call = make_kernel_call(kernel, outs, grid, WARPS, "row_attention", num_stages=STAGES)
    context, logarithm = call(product, bias, text_ids, *_visited(text_ids, window))
    return context.reshape(rows, length, heads * size), logarithm


def _kept(product, bias, text_ids, num_heads, window):
    context, logarithm = _forward(product, bias, text_ids, num_heads, window)
    return context, (product, bias, text_ids, context, logarithm)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _backward(num_heads, window, kept, gradient):
    product, bias, text_ids, context, logarithm = kept
    product_shape, bias_shape, bias_dtype = product.shape, bias.shape, bias.dtype
    product, bias, (rows, length, heads, size) = _by_head(product, bias, num_heads)
    gradient = gradient.reshape(rows, length, heads, size)
    slopes = gradient.astype(jnp.float32) * context.reshape(gradient.shape).astype(jnp.float32)
    means = jnp.sum(slopes, axis=-1).transpose(0, 2, 1)
    blocks = pl.cdiv(length, BLOCK)
    outs = (
        jax.ShapeDtypeStruct(product.shape, product.dtype),
        jax.ShapeDtypeStruct((rows, blocks, 3, heads, size), jnp.float32),
    )
    kernel = functools.partial(_gradient_kernel, length, size, window)
    call = make_kernel_call(kernel, outs, (rows, heads, blocks), WARPS, "row_attention_gradient", num_stages=STAGES)
    d_product, d_bias = call(product, bias, text_ids, *_visited(text_ids, window), logarithm, means, gradient)
    d_bias = jnp.sum(d_bias, axis=(0, 1)).reshape(bias_shape).astype(bias_dtype)
    return d_product.reshape(product_shape), d_bias, None


def _gradient_kernel(
    length, size, window, product, bias, text_ids, first, last, logarithm, means, gradient, d_product, d_bias
):
    """The gradients of a block's keys and values, then of its queries."""
    row, head, block = (pl.program_id(axis) for axis in range(3))
    load = functools.partial(_load, product, bias, row, head)
    here = _Tokens(block, length)
    begin, end = triton.load(first.at[row, block]), triton.load(last.at[row, block])

    def store(projection, d):
        d = jnp.where(here.real[:, None], d, 0.0)
        at = d_product.at[row, here.slice, projection, head, :]
        triton.store(at, d.astype(d_product.dtype), mask=here.real[:, None])
        triton.store(d_bias.at[row, block, projection, head, :], jnp.sum(d, axis=0))

    def gradient_of(tokens):
        """Of the context of these tokens; and what makes weights, and slopes of scores, of products."""
        outer = triton.load(gradient.at[row, tokens.slice, head, :], mask=tokens.real[:, None], other=0.0)
        statistics = (
            triton.load(x.at[row, head, tokens.slice], mask=tokens.real, other=0.0) for x in (logarithm, means)
        )
        return outer, *statistics

    zeros, factor = jnp.zeros((BLOCK, size), jnp.float32), 1.0 / math.sqrt(size)
    key, value = load(KEY, here), load(VALUE, here)

    def visit_queries(step, totals):
        d_key, d_value = totals
        there = _Tokens(step, length)
        query, (outer, logs, mean) = load(QUERY, there), gradient_of(there)
        scores = triton.dot(key, query, trans_b=True) * _scale(size) - logs[None, :]
        weights = jnp.where(_present(text_ids, row, here, there, window), jnp.exp2(scores), 0.0)
        d_value += triton.dot(weights.astype(outer.dtype), outer)
        d_scores = weights * (triton.dot(value, outer, trans_b=True) - mean[None, :])
        return d_key + triton.dot(d_scores.astype(key.dtype), query), d_value

    d_key, d_value = jax.lax.fori_loop(begin, end, visit_queries, (zeros, zeros))
    store(KEY, d_key * factor)
    store(VALUE, d_value)
    query, (outer, logs, mean) = load(QUERY, here), gradient_of(here)

    def visit_keys(step, d_query):
        there = _Tokens(step, length)
        key = load(KEY, there)
        scores = triton.dot(query, key, trans_b=True) * _scale(size) - logs[:, None]
        weights = jnp.where(_present(text_ids, row, here, there, window), jnp.exp2(scores), 0.0)
        d_scores = weights * (triton.dot(outer, load(VALUE, there), trans_b=True) - mean[:, None])
        return d_query + triton.dot(d_scores.astype(key.dtype), key)

    store(QUERY, jax.lax.fori_loop(begin, end, visit_keys, zeros) * factor)


_attention.defvjp(_kept, _backward)


def _by_head(product, bias, num_heads: int):
    rows, length, width = product.shape
    size = width // (3 * num_heads)
    shape = rows, length, num_heads, size
    return product.reshape(rows, length, 3, num_heads, size), bias.reshape(3, num_heads, size), shape


def _visited(text_ids, window: int | None):
    """The first of the blocks that each block of a row visits, and the one after the last: int32 (rows, blocks)."""
    length = text_ids.shape[1]
    columns = jnp.arange(length, dtype=jnp.int32)
    changes = text_ids[:, 1:] != text_ids[:, :-1]
    edge = jnp.ones_like(changes[:, :1])
    starts = jax.lax.cummax(jnp.where(jnp.concatenate([edge, changes], 1), columns, 0), axis=1)
    ends = jax.lax.cummin(jnp.where(jnp.concatenate([changes, edge], 1), columns, length), axis=1, reverse=True)
    if window is not None:
        starts, ends = jnp.maximum(starts, columns - window), jnp.minimum(ends, columns + window)
    last_of_block = jnp.minimum(columns[::BLOCK] + BLOCK - 1, length - 1)
    return starts[:, ::BLOCK] // BLOCK, ends[:, last_of_block] // BLOCK + 1


class _Tokens:
    """The tokens of a block of this number: where they are, and which of them the row has."""

    def __init__(self, block, length: int):
        self.columns = jax.lax.broadcasted_iota(jnp.int32, (BLOCK,), 0) + block * BLOCK
        self.slice, self.real = pl.ds(block * BLOCK, BLOCK), self.columns < length


def _present(text_ids, row, here: _Tokens, there: _Tokens, window: int | None):
    """Whether some tokens (rows) and others (columns) may see each other."""
    ids, other_ids = (
        triton.load(text_ids.at[row, tokens.slice], mask=tokens.real, other=beyond)
        for tokens, beyond in ((here, -2), (there, -3))
    )
    present = ids[:, None] == other_ids[None, :]
    if window is None:
        return present
    return present & (jnp.abs(here.columns[:, None] - there.columns[None, :]) <= window)


def _scale(size: int) -> float:
    """The factor from products to scores, for exponentials to base 2."""
    return math.log2(math.e) / math.sqrt(size)


def _load(product, bias, row, head, projection, tokens: _Tokens):
    """Queries, keys or values of some tokens, with their bias; zeros for tokens that the row does not have."""
    at = product.at[row, tokens.slice, projection, head, :]
    loaded = triton.load(at, mask=tokens.real[:, None], other=0.0).astype(jnp.float32)
    shift = triton.load(bias.at[projection, head, :]).astype(jnp.float32)
    return (loaded + shift[None, :]).astype(product.dtype)
