"""Floating-point operations of an encoder by part, from its configuration."""

import math

from bertzoo.analysis.parameters import without_weights
from bertzoo.config import EncoderConfig
from bertzoo.encoder import Encoder
from bertzoo.layers.disentangled import DisentangledAttention
from bertzoo.layers.mask_decoder import STEPS, EnhancedMaskDecoder

PARTS = ("embeddings projection", "projections", "attention", "relative", "feed-forward", "pooler", "head")
HEADS_OF_TOKENS = ("masked_lm", "token_classifier", "qa", "rtd")
LABELLED = ("classifier", "token_classifier")


def flops_per_token(
    config: EncoderConfig,
    length: int,
    *,
    pooler: bool = False,
    head: str | None = None,
    labels: int = 2,
    training: bool = False,
) -> dict[str, float]:
    """The operations of one text's matrix products by part, over its number of tokens; their sum is all.

    A multiply and an add are two operations. Look-ups, normalisations, activations and softmax count nothing, as is
    usual; the gradients of a product take twice what it takes, so that training is three times the forward pass. A head
    sees every token, masked or not; local attention counts in full, since it is computed so, with a mask.

    Args:
        config: The encoder's configuration.
        length: Tokens in the text. What is done once a text (the pooler, DeBERTa's positions) is spread over them.
        pooler: Whether to count the pooler, where the family has one; heads that read it do so anyway.
        head: One of the family's heads, such as "masked_lm"; none where None.
        labels: Of a classifier or token classifier.
        training: Forward and backward, not the forward pass alone.

    Returns:
        The names in PARTS -> operations a token. "projections" are those of queries, keys, values and the output of
        attention; "attention" the scores and the weighted sum; "relative" DeBERTa's projections of positions and their
        scores.

    Raises:
        ValueError: The length is out of range, or the family has no such head.
    """
    if not 1 <= length <= config.max_length:
        raise ValueError(f"length must be from 1 to {config.max_length}, what the model takes; it is {length!r}.")
    encoder = without_weights(lambda: Encoder(config))
    family = encoder.family
    if head is not None and head not in family.heads:
        raise ValueError(f"{family.hf_name} has no head {head!r}; it has {', '.join(sorted(family.heads))}.")
    parts = dict.fromkeys(PARTS, 0.0)
    parts["embeddings projection"] = length * _kernels(encoder.embeddings)
    for index in encoder.order:
        for part, operations in _block(encoder, index, length).items():
            parts[part] += operations
    pools = {"classifier": family.classifier_pools, "multiple_choice": family.multiple_choice_pools, "pair": True}
    if encoder.pooler is not None and (pooler or pools.get(head, False)):
        parts["pooler"] = _kernels(encoder.pooler)
    if head is not None:
        parts["head"] = _head(encoder, head, labels, length)
    return {part: (3 if training else 1) * operations / length for part, operations in parts.items()}


def _block(encoder: Encoder, index: int, length: int) -> dict[str, float]:
    """What one application of a block to a text takes."""
    block, hidden = encoder.blocks[index], encoder.config.hidden_size
    attention = block.attention
    projections = _kernels(attention.qkv) + _kernels(attention.output_dense)
    relative = 0
    if isinstance(attention, DisentangledAttention) and encoder.relative is not None:
        rows = 2 * (length if length <= attention.linear else attention.span)
        relative = len(attention.terms) * (2 * rows * hidden**2 + 2 * length * 2 * length * hidden)
    return {
        "projections": length * projections,
        "attention": 4 * length**2 * hidden,
        "relative": relative,
        "feed-forward": length * (_kernels(block) - _kernels(attention)),
    }


def _head(encoder: Encoder, name: str, labels: int, length: int) -> float:
    config = encoder.config

    def make():
        layer = getattr(encoder.family, name)(config, *([labels] if name in LABELLED else []))
        layer.build((None, None, config.hidden_size))
        return layer

    layer = without_weights(make)
    operations = _kernels(layer)
    if name == "masked_lm":
        operations += 2 * config.embedding_size * config.vocab_size
    operations *= length if name in HEADS_OF_TOKENS else 1
    if isinstance(layer, EnhancedMaskDecoder):
        operations += STEPS * sum(_block(encoder, encoder.order[-1], length).values())
    return operations


def _kernels(layer) -> int:
    """What a layer's kernels take for one vector."""
    return sum(2 * math.prod(weight.shape) for weight in layer.weights if weight.path.endswith("/kernel"))
