"""The layers that the family is built from; each works alone in a Keras model or in a hand-written loop."""

from bertzoo.dispatch import load_kernels
from bertzoo.layers.attention import SelfAttention, attention_weights, dot_product_attention, make_attention_mask
from bertzoo.layers.base import HostTruncatedNormal
from bertzoo.layers.block import EncoderBlock, Pooler
from bertzoo.layers.crf import CRF
from bertzoo.layers.deberta import (
    ContextHead,
    ConvolvedBlock,
    DisentangledAttention,
    EnhancedMaskDecoder,
    MaskedEmbeddings,
    RelativeEmbeddings,
)
from bertzoo.layers.embeddings import Embeddings
from bertzoo.layers.ernie import TaskEmbeddings
from bertzoo.layers.eurobert import PlainEmbeddings
from bertzoo.layers.functional import LayerNorm, RMSNorm, activation, dropout
from bertzoo.layers.gated import GatedBlock
from bertzoo.layers.heads import ClassificationHead, MaskedLMHead, Normalize, Pooling
from bertzoo.layers.modernbert import PreNormBlock
from bertzoo.layers.relative_bias import RelativeBias
from bertzoo.layers.roformer import RoFormerAttention, RotaryTable
from bertzoo.layers.rotary import RotaryAttention
from bertzoo.layers.splade import SparseStaticEmbedding, SpladePooling

__all__ = [
    "CRF",
    "ClassificationHead",
    "ContextHead",
    "ConvolvedBlock",
    "DisentangledAttention",
    "Embeddings",
    "EncoderBlock",
    "EnhancedMaskDecoder",
    "GatedBlock",
    "HostTruncatedNormal",
    "LayerNorm",
    "MaskedEmbeddings",
    "MaskedLMHead",
    "Normalize",
    "PlainEmbeddings",
    "Pooler",
    "Pooling",
    "PreNormBlock",
    "RMSNorm",
    "RelativeBias",
    "RelativeEmbeddings",
    "RoFormerAttention",
    "RotaryAttention",
    "RotaryTable",
    "SelfAttention",
    "SparseStaticEmbedding",
    "SpladePooling",
    "TaskEmbeddings",
    "activation",
    "attention_weights",
    "dropout",
    "dot_product_attention",
    "make_attention_mask",
]

load_kernels()
