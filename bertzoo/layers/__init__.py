"""The layers that the family is built from; each works alone in a Keras model or in a hand-written loop."""

from bertzoo.layers.attention import (
    SelfAttention,
    attention_weights,
    dot_product_attention,
    make_attention_mask,
)
from bertzoo.layers.base import HostTruncatedNormal
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.crf import CRF
from bertzoo.layers.deberta import ContextHead, ConvolvedBlock, EnhancedMaskDecoder, MaskedEmbeddings
from bertzoo.layers.dense import activation
from bertzoo.layers.disentangled import DisentangledAttention, RelativeEmbeddings
from bertzoo.layers.embeddings import Embeddings
from bertzoo.layers.heads import ClassificationHead, MaskedLMHead, Pooler
from bertzoo.layers.norm import LayerNorm, dropout
from bertzoo.layers.pooling import Normalize, Pooling
from bertzoo.layers.prenorm import PreNormBlock
from bertzoo.layers.relative_bias import RelativeBias
from bertzoo.layers.rotary import RotaryAttention

__all__ = [
    "CRF",
    "ClassificationHead",
    "ContextHead",
    "ConvolvedBlock",
    "DisentangledAttention",
    "Embeddings",
    "EncoderBlock",
    "EnhancedMaskDecoder",
    "HostTruncatedNormal",
    "LayerNorm",
    "MaskedEmbeddings",
    "MaskedLMHead",
    "Normalize",
    "Pooler",
    "Pooling",
    "PreNormBlock",
    "RelativeBias",
    "RelativeEmbeddings",
    "RotaryAttention",
    "SelfAttention",
    "activation",
    "attention_weights",
    "dropout",
    "dot_product_attention",
    "make_attention_mask",
]
