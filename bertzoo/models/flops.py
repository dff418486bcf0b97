"""The floating-point operations of an encoder and its masked-LM head."""

import math
from functools import lru_cache
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import build_without_values
from bertzoo.layers.attention import SelfAttention
from bertzoo.layers.deberta import DisentangledAttention, RelativeEmbeddings
from bertzoo.layers.local_attention import keys_per_query, pays_off
from bertzoo.layers.rotary import RotaryAttention
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.models.registry import FAMILIES


def flops_by_part(
    config: EncoderConfig, length: float | np.ndarray, num_queries: int | None = None, batch_size: int = 1
) -> dict[str, Any]:
    """Floating-point operations of an example's forward pass through an encoder's matrix products, by component.

    A multiplication and an addition are two operations. Look-ups, normalisations, activations and softmax are not
    counted, as is usual. Local attention counts the blocks of keys that it computes.

    Args:
        config: The encoder's configuration.
        length: Tokens of an example, or an array of lengths.
        num_queries: Number of tokens that the head reads, if the last block computes only these.
        batch_size: Examples of this length in a batch. DeBERTa projects its position table once for all of them (He et
            al. 2021, section 3.1), so that each example counts a fraction of that; nothing else depends on it.

    Returns:
        A float each, or for an array of lengths an array (n,): "embeddings", their projection; "projections", of
        queries, keys, values and the output of attention; "attention", its scores and weighted sums; "relative",
        DeBERTa's projections of positions and their scores; "feed-forward", convolutions among it.

    Raises:
        ValueError: `batch_size` is below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more. Received: {batch_size}.")
    length = np.asarray(length, "float64")
    encoder = _encoder(config)
    blocks = [encoder.blocks[index] for index in encoder.block_order]
    projections = [_kernels(block.attention.qkv) + _kernels(block.attention.output_dense) for block in blocks]
    feed_forward = [_kernels(block) - _kernels(block.attention) for block in blocks]
    keys = [_keys(block.attention, length) for block in blocks]
    # Tokens of which the last block computes attention, and nothing that follows.
    spared = 0.0 * length if num_queries is None else np.maximum(length - num_queries, 0.0)
    flops = {
        "embeddings": length * _kernels(encoder.embeddings),
        "projections": length * sum(projections) - spared * _kernels(blocks[-1].attention.output_dense),
        "attention": 4 * config.hidden_size * length * sum(keys),
        "relative": 0.0 * length,
        "feed-forward": length * sum(feed_forward) - spared * feed_forward[-1],
    }
    if isinstance(encoder.position_bias, RelativeEmbeddings):
        for block in blocks:
            flops["relative"] = flops["relative"] + _relative(block.attention, length, batch_size)
    return {name: operations if operations.ndim else float(operations) for name, operations in flops.items()}


def _keys(attention: SelfAttention, length: np.ndarray) -> np.ndarray:
    """The keys of which a query has a score."""
    if isinstance(attention, RotaryAttention) and attention.window is not None:
        return np.where(pays_off(length, attention.window), keys_per_query(attention.window), length)
    return length


def _relative(attention: DisentangledAttention, length: np.ndarray, batch_size: int) -> np.ndarray:
    """Operations of the terms of relative positions."""
    hidden = attention.hidden_size
    # Up to `linear` tokens only the rows that occur are projected, from there on the whole table.
    rows = 2 * np.where(length <= attention.linear, length, attention.span)
    return len(attention.terms) * (2 * rows * hidden**2 / batch_size + 4 * length**2 * hidden)


def encoder_flops(
    config: EncoderConfig, length: float | np.ndarray, num_queries: int | None = None, batch_size: int = 1
) -> Any:
    """Floating-point operations of an example's forward pass through an encoder. Training takes three times as many.

    Args:
        config, length, num_queries, batch_size: As for `flops_by_part`.

    Returns:
        A float, or for an array of lengths an array (n,).

    Example:
        >>> encoder = bz.Encoder.from_preset("bert_mini_en", verbose=False)
        >>> bz.analysis.encoder_flops(encoder.config, 128) > 2 * bz.analysis.encoder_flops(encoder.config, 64)
        True
    """
    return sum(flops_by_part(config, length, num_queries, batch_size).values())


def masked_lm_head_flops(config: EncoderConfig, num_queries: int) -> float:
    """Floating-point operations of a masked-LM head.

    Args:
        config: The encoder's configuration.
        num_queries: Number of tokens at which the head predicts.
    """
    options, width = FAMILIES[config.model_type].head_layer_options(config, "masked_lm"), config.embedding_size
    transform = config.hidden_size * width if options.get("transforms", True) else 0
    return 2.0 * num_queries * (transform + width * config.vocab_size)


@lru_cache(maxsize=64)
def _encoder(config: EncoderConfig) -> Encoder:
    return build_without_values(lambda: Encoder(config))


def _kernels(layer: keras.layers.Layer) -> int:
    """Operations of a layer's kernels per vector."""
    return sum(2 * math.prod(weight.shape) for weight in layer.weights if weight.path.endswith("/kernel"))
