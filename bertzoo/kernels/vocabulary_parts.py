"""Under JAX, parts of the vocabulary are computed in a loop of the compiled program, certainly one after another."""

import jax
import jax.numpy as jnp

from bertzoo.dispatch import register_faster_form
from bertzoo.layers.splade import pool_by_words


@register_faster_form(pool_by_words, backend="jax")
def _pool_in_a_loop(pool, x, table, bias, words):
    count = table.shape[0]
    if words >= count:
        return None
    parts = -(-count // words)
    rows = parts * words - count

    def step(part):
        return jax.checkpoint(pool)(x, *part)

    tables = jnp.pad(table, ((0, rows), (0, 0))).reshape(parts, words, -1)
    pooled = jax.lax.map(step, (tables, jnp.pad(bias, (0, rows)).reshape(parts, words)))  # (parts, batch, words)
    return jnp.moveaxis(pooled, 0, 1).reshape(pooled.shape[1], -1)[:, :count]
