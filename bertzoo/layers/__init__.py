"""The layers that the family is built from; each works alone in a Keras model or in a hand-written loop."""

from bertzoo.layers.activations import activation
from bertzoo.layers.attention import SelfAttention, attention_weights, fused_attention, make_attention_mask
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.context_head import ContextHead
from bertzoo.layers.convolved_block import ConvolvedBlock
from bertzoo.layers.crf import CRF
from bertzoo.layers.disentangled import DisentangledAttention, RelativeEmbeddings
from bertzoo.layers.dropout import dropout
from bertzoo.layers.embeddings import Embeddings
from bertzoo.layers.heads import ClassificationHead, MaskedLMHead
from bertzoo.layers.initialization import HostTruncatedNormal
from bertzoo.layers.layer_norm import LayerNorm
from bertzoo.layers.mask_decoder import EnhancedMaskDecoder
from bertzoo.layers.masked_embeddings import MaskedEmbeddings
from bertzoo.layers.pooler import Pooler
from bertzoo.layers.pooling import Normalize, Pooling
from bertzoo.layers.prenorm_block import PreNormBlock
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
    "fused_attention",
    "make_attention_mask",
]
