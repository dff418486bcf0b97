"""The floating-point operations of an encoder and its masked-LM head."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from bertzoo._keras_hooks import without_values
from bertzoo.layers.disentangled import DisentangledAttention
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder


def flops_by_part(
    config: EncoderConfig, length: float | np.ndarray, queries: int | None = None, batch_size: int = 1
) -> dict[str, Any]:
    """Floating-point operations of an example's forward pass through an encoder's matrix products, by part.

    A multiplication and an addition are two operations. Look-ups, normalisations, activations and softmax are not
    counted, as is usual. Local attention counts in full, since it is computed in full and masked.

    Args:
        config: The encoder's configuration.
        length: Tokens of an example, or an array of lengths.
        queries: Number of tokens that the head reads, if the last block computes only these.
        batch_size: Examples of this length in a batch. DeBERTa projects its position table once for all of them (He et
            al. 2021, section 3.1), so that each has a share of that; nothing else depends on it.

    Returns:
        A float each, or for an array of lengths an array: "embeddings", their projection; "projections", of queries,
        keys, values and the output of attention; "attention", its scores and weighted sums; "relative", DeBERTa's
        projections of positions and their scores; "feed-forward", convolutions among it.

    Raises:
        ValueError: `batch_size` is below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more. Received: {batch_size}.")
    length = np.asarray(length, "float64")
    hidden, (embeddings, blocks) = config.hidden_size, _products(config)
    last = blocks[-1]
    spared = 0.0 * length
    if queries is not None and last.supports_query_subset:
        spared = np.maximum(length - queries, 0.0)
    parts = {
        "embeddings": length * embeddings,
        "projections": length * sum(block.projections for block in blocks) - spared * last.queries,
        "attention": 4 * length * hidden * (length * len(blocks) - spared),
        "relative": sum((block.relative(length, hidden, batch_size) for block in blocks), 0 * length),
        "feed-forward": length * sum(block.feed_forward for block in blocks) - spared * last.feed_forward,
    }
    return {name: operations if operations.ndim else float(operations) for name, operations in parts.items()}


def encoder_flops(
    config: EncoderConfig, length: float | np.ndarray, queries: int | None = None, batch_size: int = 1
) -> Any:
    """Floating-point operations of an example's forward pass through an encoder: a float, or for an array of lengths an
    array. Training takes three times as many. See `flops_by_part` for the arguments."""
    return sum(flops_by_part(config, length, queries, batch_size).values())


def head_flops(config: EncoderConfig, queries: int) -> float:
    """Floating-point operations of a masked-LM head at `queries` tokens."""
    width = config.embedding_size
    return 2.0 * queries * (config.hidden_size * width + width * config.vocab_size)


class _Block:
    """What one application of a block takes: `projections`, `queries` (the part of them for what asks) and
    `feed_forward` for a token, `relative` for a row of a batch."""

    def __init__(self, block, encoder):
        attention = block.attention
        self.projections = _kernels(attention.qkv) + _kernels(attention.output_dense)
        self.feed_forward = _kernels(block) - _kernels(attention)
        self.queries = self.projections // 2  # those of queries and of what comes out; keys and values are as wide
        self.supports_query_subset = block.supports_query_subset
        disentangled = encoder.position_bias is not None and isinstance(attention, DisentangledAttention)
        self.terms = len(attention.terms) if disentangled else 0
        # Up to `linear` tokens only the rows that occur are projected, from there on the whole table.
        self.linear, self.span = (attention.linear, attention.span) if disentangled else (0, 0)

    def relative(self, length: np.ndarray, hidden: int, batch_size: int) -> np.ndarray:
        rows = 2 * np.where(length <= self.linear, length, self.span)
        return self.terms * (2 * rows * hidden**2 / batch_size + 2 * length * 2 * length * hidden)


@lru_cache(maxsize=64)
def _products(config: EncoderConfig) -> tuple[int, tuple[_Block, ...]]:
    """What the embeddings take for a token, and the blocks in the order in which they are applied."""
    encoder = without_values(lambda: Encoder(config))
    blocks = [_Block(block, encoder) for block in encoder.blocks]
    return _kernels(encoder.embeddings), tuple(blocks[index] for index in encoder.layer_schedule)


def _kernels(layer) -> int:
    """What a layer's kernels take for one vector."""
    return sum(2 * math.prod(weight.shape) for weight in layer.weights if weight.path.endswith("/kernel"))
