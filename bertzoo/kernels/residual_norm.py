"""Bias, dropout, residual sum and LayerNorm in one pass over memory, forward and backward: JAX on a GPU only.

XLA makes eight kernels of them, which take a sixth of a training step of BERT-base.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bertzoo.kernels.pallas import make_kernel_call
from bertzoo.random import position_hash_words, random_bits_of_channels

WARPS = 2
PROGRAMS = 1056  # of the backward pass: eight per multiprocessor of an H100; each sums the gradients of its rows
MAX_CHUNKS = 8


def _channels_per_chunk(width: int) -> int:
    """The largest power of two that divides the width: the channels of an array in a kernel."""
    return width & -width


def _rows_per_load(rows: int, width: int) -> int:
    """The number of rows per load: one, or more where they are short."""
    return min(max(1, 1024 // pl.next_power_of_2(width)), rows & -rows)


def supports_width(width: int) -> bool:
    """Whether the kernels support this width."""
    return width // _channels_per_chunk(width) <= MAX_CHUNKS and width <= 2048


# Tracing and lowering a kernel takes 50 ms, and a model calls it dozens of times.
@functools.partial(jax.jit, static_argnums=(6, 7))
def residual_norm_kernel(product, bias, residual, gamma, beta, dropout_key_and_indices, rate: float, epsilon: float):
    """LayerNorm(residual + dropout(product + bias)).

    Args:
        product, residual: (rows, width).
        bias, gamma, beta: (width,).
        dropout_key_and_indices: The dropout key, int32 (2,), and of each row the text and the position in it, int32
            (rows,) each; () for no dropout.
        rate: Fraction to drop.
        epsilon: Added to the variance.
    """
    return _fused(product, bias, residual, gamma, beta, dropout_key_and_indices, rate, epsilon)


@functools.partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def _fused(*arguments):
    return _forward(*arguments)[0]


def _forward(product, bias, residual, gamma, beta, dropped, rate, epsilon):
    """The result, and each row's mean and reciprocal standard deviation."""
    rows, width = product.shape
    size = _rows_per_load(rows, width)

    def kernel(*refs):
        *inputs, out, means, scales = refs
        first = pl.program_id(0) * size
        row = pl.ds(first, size)
        sums, _ = _sums(inputs, first, size, rate)
        mean = sum(jnp.sum(values, axis=1, keepdims=True) for values in sums) / width
        centred = [values - mean for values in sums]
        variance = sum(jnp.sum(values * values, axis=1, keepdims=True) for values in centred) / width
        scale = jax.lax.rsqrt(variance + epsilon)
        triton.store(means.at[row], mean[:, 0])
        triton.store(scales.at[row], scale[:, 0])
        for c, values in enumerate(centred):
            channels = _channels(c, width)
            normed = values * scale * _load(inputs[3], channels) + _load(inputs[4], channels)
            triton.store(out.at[row, channels], normed.astype(out.dtype))

    statistics = jax.ShapeDtypeStruct((rows,), jnp.float32)
    outs = jax.ShapeDtypeStruct(product.shape, product.dtype), statistics, statistics
    call = make_kernel_call(kernel, outs, (rows // size,), WARPS, "residual_norm")
    return call(product, bias, residual, gamma, beta, *dropped)


def _kept(*arguments):
    out, *statistics = _forward(*arguments)
    return out, (arguments[:6], statistics)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _backward(rate, epsilon, kept, gradient):
    (product, bias, residual, gamma, beta, dropped), statistics = kept
    rows, width = product.shape
    size, chunk = _rows_per_load(rows, width), _channels_per_chunk(width)
    blocks = rows // size
    programs = min(PROGRAMS, blocks)

    def kernel(*refs):
        *inputs, means, scales, gradient, d_product, d_residual, d_vectors = refs
        program = pl.program_id(0)

        def block(i, totals):
            first = (program + i * programs) * size
            row = pl.ds(first, size)
            sums, keeps = _sums(inputs, first, size, rate)
            mean, scale = (triton.load(statistic.at[row])[:, None] for statistic in (means, scales))
            normed = [(values - mean) * scale for values in sums]
            outer = [_load(gradient, row, _channels(c, width)) for c in range(len(normed))]
            inner = [d * _load(inputs[3], _channels(c, width)) for c, d in enumerate(outer)]
            level = sum(jnp.sum(d, axis=1, keepdims=True) for d in inner) / width
            slope = sum(jnp.sum(d * n, axis=1, keepdims=True) for d, n in zip(inner, normed)) / width
            added = []
            for c, keep in enumerate(keeps):
                channels = _channels(c, width)
                d_sum = (inner[c] - level - normed[c] * slope) * scale
                d_branch = d_sum if keep is None else jnp.where(keep, d_sum * (1.0 / (1.0 - rate)), 0.0)
                triton.store(d_residual.at[row, channels], d_sum.astype(d_residual.dtype))
                triton.store(d_product.at[row, channels], d_branch.astype(d_product.dtype))
                added.append((d_branch, outer[c] * normed[c], outer[c]))
            return jax.tree.map(jnp.add, totals, added)

        zeros = [(jnp.zeros((size, chunk), jnp.float32),) * 3 for _ in range(width // chunk)]
        totals = jax.lax.fori_loop(0, (blocks - program + programs - 1) // programs, block, zeros)
        for c, sums in enumerate(totals):
            for vector, total in enumerate(sums):
                triton.store(d_vectors.at[program, np.int32(vector), _channels(c, width)], jnp.sum(total, axis=0))

    outs = (
        jax.ShapeDtypeStruct(product.shape, product.dtype),
        jax.ShapeDtypeStruct(residual.shape, residual.dtype),
        jax.ShapeDtypeStruct((programs, 3, width), jnp.float32),
    )
    call = make_kernel_call(kernel, outs, (programs,), WARPS, "residual_norm_gradient")
    d_product, d_residual, partial = call(product, bias, residual, gamma, beta, *dropped, *statistics, gradient)
    totals = jnp.sum(partial, axis=0)  # all three in one sum, so that XLA also updates the three in one kernel
    d_bias, d_gamma, d_beta = (total.astype(of.dtype) for total, of in zip(totals, (bias, gamma, beta)))
    return d_product, d_bias, d_residual, d_gamma, d_beta, None


_fused.defvjp(_kept, _backward)


def _channels(c: int, width: int):
    return pl.ds(c * _channels_per_chunk(width), _channels_per_chunk(width))


def _load(ref, *index):
    return triton.load(ref.at[index]).astype(jnp.float32)


def _sums(inputs, first, size, rate):
    """The residual sums of `size` rows from `first` on, in chunks of channels, and their dropout masks or None."""
    product, bias, residual, _, _, *dropped = inputs
    row, width = pl.ds(first, size), product.shape[1]
    if dropped:
        key, *indices = dropped
        text, position = (triton.load(index.at[row])[:, None] for index in indices)
        words = position_hash_words([triton.load(key.at[np.int32(i)]) for i in range(2)], text, position)
    sums, keeps = [], []
    for c in range(width // _channels_per_chunk(width)):
        channels = _channels(c, width)
        branch, keep = _load(product, row, channels) + _load(bias, channels), None
        if dropped:
            index = c * _channels_per_chunk(width) + jax.lax.broadcasted_iota(jnp.int32, branch.shape, 1)
            keep = random_bits_of_channels(*words, index) >= round(rate * 2**32) - 2**31
            branch = jnp.where(keep, branch * (1.0 / (1.0 - rate)), 0.0)
        sums.append(_load(residual, row, channels) + branch)
        keeps.append(keep)
    return sums, keeps
