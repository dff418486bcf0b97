"""Attention over long rows, block by block (Rabe and Staats 2021): JAX on a CPU, where XLA would store all scores."""

import math

import jax
import jax.numpy as jnp

from bertzoo.layers.attention import MASKED
from bertzoo.layers.local_attention import BEYOND

SHORTEST = 1024
QUERIES, KEYS = 512, 1024  # of a block, whose scores for one head stay in the cache


def blockwise_attention(query, key, value, text_ids):
    """softmax(q·k / √head size)·v within each text: (batch, length, heads, head size).

    Memory is linear in the length, in the backward pass too, which computes the scores anew.

    Args:
        query, key, value: (batch, length, heads, head size).
        text_ids: int32 (batch, length), the text of each token.
    """
    batch, length, heads, size = query.shape

    def split(x, count):
        """(batch, length, heads, size) -> (heads, blocks, batch, count, size)."""
        x = jnp.pad(x, ((0, 0), (0, -length % count), (0, 0), (0, 0)))
        return x.reshape(batch, -1, count, heads, size).transpose(3, 1, 0, 2, 4)

    def split_ids(count):
        """(blocks, batch, count)."""
        ids = jnp.pad(text_ids, ((0, 0), (0, -length % count)), constant_values=BEYOND)
        return ids.reshape(batch, -1, count).swapaxes(0, 1)

    query_ids, key_ids = split_ids(QUERIES), split_ids(KEYS)

    def attend_head(blocks):
        queries, keys, values = blocks
        attend = jax.checkpoint(lambda block: _attend(block[0], block[1], keys, values, key_ids))
        return jax.lax.map(attend, (queries, query_ids))

    scaled = query * (1.0 / math.sqrt(size))
    out = jax.lax.map(attend_head, (split(scaled, QUERIES), split(key, KEYS), split(value, KEYS)))
    return out.transpose(2, 1, 3, 0, 4).reshape(batch, -1, heads, size)[:, :length]


def _attend(query, query_ids, keys, values, key_ids):
    """A block's context (batch, count, size), from all keys and values (blocks, batch, count, size)."""

    def add_keys(sums, block):
        highest, total, context = sums
        key, value, ids = block
        scores = jnp.einsum("bqk,bsk->bqs", query, key, preferred_element_type=jnp.float32)
        scores = jnp.where(query_ids[:, :, None] == ids[:, None], scores, MASKED)
        higher = jnp.maximum(highest, jnp.max(scores, axis=-1, keepdims=True))
        exponentials, shrink = jnp.exp(scores - higher), jnp.exp(highest - higher)
        total = total * shrink + jnp.sum(exponentials, axis=-1, keepdims=True)
        added = jnp.einsum("bqs,bsk->bqk", exponentials.astype(value.dtype), value, preferred_element_type=jnp.float32)
        return (higher, total, context * shrink + added), None

    column = jnp.zeros((*query.shape[:2], 1), jnp.float32)
    start = column + MASKED, column, jnp.zeros(query.shape, jnp.float32)
    (_, total, context), _ = jax.lax.scan(add_keys, start, (keys, values, key_ids))
    return (context / total).astype(query.dtype)
