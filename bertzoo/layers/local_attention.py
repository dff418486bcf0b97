"""Attention within a window (Beltagy et al. 2020, section 3.1) in blocks: time and memory are linear in the length.

A row is cut into blocks as long as the window reaches to one side. The queries of a block attend to the keys of three
blocks, their own and its two neighbours, among which are all within reach.
"""

from typing import Any

from keras import ops

from bertzoo.dispatch import dispatched_operation
from bertzoo.layers.attention import AttentionMask, dot_product_attention
from bertzoo.types import Tensor

PADDING, BEYOND = -1, -2  # as text ids: of padding tokens, and of the tokens that fill the blocks


def pays_off(length: Any, window: int) -> Any:
    """Whether rows are so long that blocks are faster than all scores: bool, or for an array of lengths an array.

    On 2 cores, with a window of 64, PyTorch and JAX are as fast with either at 512 and at 256 tokens.
    """
    return length > 6 * window


def keys_per_query(window: int) -> int:
    """Of how many keys `local_attention` computes a query's scores."""
    return 3 * max(window, 1)


def has_key_mask(mask: AttentionMask | None) -> bool:
    """Whether all queries of a text see the same keys of it, as `local_attention` requires."""
    return mask is None or mask.text_ids is not None or tuple(mask.mask.shape[1:3]) == (1, 1)


def text_ids_of(x: Tensor, mask: AttentionMask | None) -> Tensor:
    """The text of each token of x, (batch, length, …), PADDING at padding: int32 (batch, length)."""
    ids = ops.zeros((1, 1), dtype="int32")
    if mask is not None:
        ids = ops.where(mask.mask[:, 0, 0], 0, PADDING) if mask.text_ids is None else mask.text_ids
    return ops.broadcast_to(ids, ops.shape(x)[:2])


@dispatched_operation
def local_attention(
    query: Tensor, key: Tensor, value: Tensor, window: int, attention_mask: AttentionMask | None = None
) -> Tensor:
    """The means of the values at most `window` tokens away from each query: (batch, length, heads, head size).

    Padding attends to padding.

    Args:
        query, key, value: (batch, length, heads, head size).
        window: How many tokens a query sees to each side.
        attention_mask: As for `attention_weights`, the same for all queries of a text.
    """
    (batch, length), (heads, size) = ops.shape(query)[:2], query.shape[2:]
    block = max(window, 1)
    if ops.is_tensor(length):  # of a graph for all lengths: short rows take short blocks
        block = ops.minimum(block, length)
    ids = text_ids_of(query, attention_mask)
    queries = ops.reshape(_fill_blocks(query, block, 0), (-1, block, heads, size))
    query_ids = ops.reshape(_fill_blocks(ids, block, BEYOND), (-1, block, 1))
    keys, values = (ops.reshape(_neighbours(x, block, 0), (-1, 3 * block, heads, size)) for x in (key, value))
    key_ids = ops.reshape(_neighbours(ids, block, BEYOND), (-1, 1, 3 * block))
    offset = ops.arange(3 * block, dtype="int32")[None, :] - block - ops.arange(block, dtype="int32")[:, None]
    visible = ops.logical_and(query_ids == key_ids, ops.abs(offset) <= window)
    out = dot_product_attention(queries, keys, values, AttentionMask(visible[:, None]))
    return ops.reshape(out, (batch, -1, heads, size))[:, :length]


def _fill_blocks(x: Tensor, block: int | Tensor, fill: int) -> Tensor:
    """(batch, length, …), lengthened to whole blocks."""
    lacking = -ops.shape(x)[1] % block
    if isinstance(lacking, int) and lacking == 0:
        return x
    return ops.concatenate([x, _filled(x, lacking, fill)], axis=1)


def _neighbours(x: Tensor, block: int | Tensor, fill: int) -> Tensor:
    """(batch, length, …) -> (batch, blocks, 3 * block, …): each block between its two neighbours."""
    after = _filled(x, -ops.shape(x)[1] % block + block, fill)
    x = ops.concatenate([_filled(x, block, fill), x, after], axis=1)
    blocks = ops.reshape(x, (ops.shape(x)[0], -1, block, *x.shape[2:]))
    return ops.concatenate([blocks[:, :-2], blocks[:, 1:-1], blocks[:, 2:]], axis=2)


def _filled(x: Tensor, count: int | Tensor, fill: int) -> Tensor:
    """`count` tokens like those of x, (batch, count, …)."""
    # Not `ops.pad`, which counts its calls: PyTorch would compile each step anew.
    return ops.full((ops.shape(x)[0], count, *x.shape[2:]), fill, dtype=x.dtype)
