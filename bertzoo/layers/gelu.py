"""The exact GELU under JAX."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import jax.numpy as jnp


@jax.custom_vjp
def gelu(x):
    """x Φ(x), with Φ the normal distribution's function (Hendrycks and Gimpel 2016): same shape as x.

    JAX's own form takes a complementary error function, which costs twice as much, and keeps for its gradient what can
    be computed from x: a tenth of a training step of BERT-base on a GPU, and a quarter of its memory.
    """
    wide = x.astype(jnp.float32)
    return (wide * _normal(wide)).astype(x.dtype)


def _kept(x):
    return gelu(x), x


def _gradient(x, gradient):
    wide = x.astype(jnp.float32)
    density = jnp.exp(-0.5 * wide * wide) * (1.0 / math.sqrt(2.0 * math.pi))
    return ((gradient.astype(jnp.float32) * (_normal(wide) + wide * density)).astype(x.dtype),)


gelu.defvjp(_kept, _gradient)


def _spelled_out(x):
    return 1.0 - jax.lax.erfc(x)


_erf = jax.lax.erf


def _normal(x):
    return 0.5 + 0.5 * _erf(x * math.sqrt(0.5))


@contextmanager
def exportable() -> Iterator[None]:
    """Within it, GELU is traced without the operation erf: TensorFlow 2.21 can't read what JAX makes of it."""
    global _erf
    _erf = _spelled_out
    try:
        yield
    finally:
        _erf = jax.lax.erf
