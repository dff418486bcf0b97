"""The layers that the family is built from; each works alone in a Keras model or in a hand-written loop."""

from bertzoo.layers.activations import activation
from bertzoo.layers.attention import SelfAttention, attention_mask, attention_weights, fused_attention
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.dropout import dropout
from bertzoo.layers.embeddings import Embeddings
from bertzoo.layers.heads import ClassificationHead, MaskedLMHead
from bertzoo.layers.initialization import HostTruncatedNormal
from bertzoo.layers.layer_norm import LayerNorm
from bertzoo.layers.pooler import Pooler
from bertzoo.layers.relative_bias import RelativeBias

__all__ = [
    "ClassificationHead",
    "Embeddings",
    "EncoderBlock",
    "HostTruncatedNormal",
    "LayerNorm",
    "MaskedLMHead",
    "Pooler",
    "RelativeBias",
    "SelfAttention",
    "activation",
    "attention_mask",
    "attention_weights",
    "dropout",
    "fused_attention",
]
