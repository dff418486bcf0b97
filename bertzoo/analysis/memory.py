"""How much memory a training step needs for activations."""

import math

import numpy as np

from bertzoo._keras_hooks import without_values
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder


def activation_bytes(config: EncoderConfig, length: int, bytes_per_number: int = 4) -> int:
    """Bytes that the backward pass of one row needs from the forward pass through an encoder.

    That is what goes into each matrix product, normalisation and activation, queries, keys and values, and the
    attention weights of families whose scores have a learnt part, for which no fused kernel avoids them. What a backend
    keeps beyond that, for dropout and where a kernel is not fused, is not counted; nor are gradients, optimizer and
    weights, which do not depend on the row. Without fused attention a step keeps two to five times as much: Korthikanti
    et al. (2022), equation 1, count length × hidden × (34 + 5 × heads × length / hidden) bytes a layer in 16 bits.

    Args:
        config: The encoder's configuration.
        length: Tokens in the row.
        bytes_per_number: 4 in float32, 2 in half precision.
    """
    encoder = without_values(lambda: Encoder(config, pooler=False))
    numbers = _normalised(encoder.embeddings) + _read(encoder.embeddings)
    for index in encoder.layer_schedule:
        block = encoder.blocks[index]
        kernel = block.intermediate.kernel.shape  # what comes out of it goes into the activation
        gate = kernel[1] - block.output_dense.kernel.shape[0]  # and a gated one into a product, too
        numbers += _read(block) + _normalised(block) + kernel[1] + gate + 3 * config.hidden_size
        if encoder.position_bias is not None:
            numbers += config.num_attention_heads * length
    return int(np.int64(length) * numbers * bytes_per_number)


def _read(layer) -> int:
    """Numbers of a token that go into kernels."""
    kernels = [weight for weight in layer.weights if weight.path.endswith("/kernel")]
    return sum(kernel.shape[-2] for kernel in kernels if "/position_" not in kernel.path)


def _normalised(layer) -> int:
    """Numbers of a token that go into normalisations."""
    return sum(math.prod(weight.shape) for weight in layer.weights if weight.path.endswith("/gamma"))
