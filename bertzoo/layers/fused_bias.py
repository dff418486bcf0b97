"""DeBERTa's relative bias in one pass over memory, and its gradient in another: JAX on a GPU only.

XLA makes several of each, of which transposing one term is an eighth of a training step of DeBERTa-v3-base on an H200.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

SIDE = 64  # of the square of scores that one program makes
WARPS = 8


@jax.custom_vjp
def fused_relative_bias(c2p, p2c):
    """(batch, heads, length, 2 * length) twice -> (batch, heads, length, length), all of one dtype.

    That of query t and key s is c2p[t, length - 1 - t + s] + p2c[s, length - s + t].
    """
    batch, heads, length, _ = c2p.shape

    def kernel(c2p, p2c, bias):
        head, example, t, s, inside = _tile(heads, length)
        # Triton sees that neighbours in p2c's rows differ in t, reads along these and transposes by itself.
        by_query = triton.load(c2p.at[head, example, t, length - 1 - t + s], mask=inside)
        by_key = triton.load(p2c.at[head, example, s, length - s + t], mask=inside)
        total = by_query.astype(jnp.float32) + by_key.astype(jnp.float32)
        triton.store(bias.at[example, head, t, s], total.astype(bias.dtype), mask=inside)

    out = jax.ShapeDtypeStruct((batch, heads, length, length), c2p.dtype)
    return _call(kernel, out, c2p.shape, "relative_bias")(_swapped(c2p), _swapped(p2c))


def _forward(c2p, p2c):
    return fused_relative_bias(c2p, p2c), None


def _backward(_, gradient):
    batch, heads, length, _ = gradient.shape

    def kernel(gradient, d_c2p, d_p2c):
        head, example, t, s, inside = _tile(heads, length)
        values = triton.load(gradient.at[example, head, t, s], mask=inside)
        zeros = jnp.zeros(values.shape, values.dtype)
        for out, row, column in ((d_c2p, t, length - 1 - t + s), (d_p2c, s, length - s + t)):
            triton.store(out.at[head, example, row, column], values, mask=inside)
            # No score is made of what is half a row away, on either side: every element is written, and once.
            for other, there in ((column + length, column < length), (column - length, column >= length)):
                triton.store(out.at[head, example, row, other], zeros, mask=inside & there)

    out = jax.ShapeDtypeStruct((heads, batch, length, 2 * length), gradient.dtype)
    d_c2p, d_p2c = _call(kernel, (out, out), gradient.shape, "relative_bias_gradient")(gradient)
    return _swapped(d_c2p), _swapped(d_p2c)


fused_relative_bias.defvjp(_forward, _backward)


def _swapped(x):
    """(batch, heads, …) <-> (heads, batch, …), the order in which products for each head come: XLA then copies none."""
    return jnp.swapaxes(x, 0, 1)


def _side(length: int) -> int:
    """SIDE, or less where that holds the length: the places of a tile in a row of 2 * length must all be others."""
    return min(SIDE, pl.next_power_of_2(length))


def _tile(heads: int, length: int):
    """A program's head and example, queries (side, 1), keys (1, side), and which pairs of these there are."""
    side = _side(length)
    across = pl.cdiv(length, side)
    square, column = pl.program_id(0) // across, pl.program_id(0) % across
    pair, row = square // across, square % across
    t = row * side + jax.lax.broadcasted_iota(jnp.int32, (side, 1), 0)
    s = column * side + jax.lax.broadcasted_iota(jnp.int32, (1, side), 1)
    return pair % heads, pair // heads, t, s, (t < length) & (s < length)


def _call(kernel, out_shape, shape, name: str):
    batch, heads, length, _ = shape
    on_gpu = jax.default_backend() == "gpu"
    parameters = triton.CompilerParams(num_warps=WARPS, num_stages=1)
    return pl.pallas_call(
        kernel,
        out_shape,
        grid=(batch * heads * pl.cdiv(length, _side(length)) ** 2,),  # one axis: CUDA's others end at 65,535
        interpret=not on_gpu,
        compiler_params=parameters if on_gpu else None,
        name=name,
    )
