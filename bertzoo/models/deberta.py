"""DeBERTa (He et al. 2021), its second version, and v3 and mDeBERTa (He et al. 2023).

Relative positions are in every attention, absolute ones in the masked-LM head alone. The second version has distances
in buckets, shared keys and a convolution.
"""

import re
from collections.abc import Container
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import keras

from bertzoo.checkpoints.json_files import NULL, TEXT, integer_rule, list_rule
from bertzoo.layers.deberta import (
    ContextHead,
    ConvolvedBlock,
    DisentangledAttention,
    DisentangledAttentionV1,
    EnhancedMaskDecoder,
    MaskedEmbeddings,
    RelativeEmbeddings,
)
from bertzoo.models.bert import Bert
from bertzoo.models.config import Activation, Dropout, EncoderConfig, Flag
from bertzoo.models.family import Family
from bertzoo.models.heads import PLAIN_HEADS, HeadSpec, Names, dense_names, norm_names, two_dense_head

TERMS = ("c2p", "p2c")
POSITIONS = "embeddings.position_embeddings.weight"
SELF = "encoder.layer.{i}.attention.self."

# What blocks and embeddings of both versions have.
SHARED_NAMES = (
    *(pair for pair in Bert.names if "pooler/" not in pair[0] and "/qkv/" not in pair[0]),
    ("embeddings/projection/kernel", "embeddings.embed_proj.weight"),
    ("relative/table", "encoder.rel_embeddings.weight"),
    ("masked_lm/position", POSITIONS),
)
# The masked-LM head of Microsoft's files, and of Hugging Face's with legacy = false.
ORIGINAL_MASKED_LM = tuple(
    (keras_name, re.sub(r"cls\.predictions(\.transform)?", "lm_predictions.lm_head", hf_name))
    for keras_name, hf_name in Bert.heads["masked_lm"].names
)


@dataclass(frozen=True)
class DebertaConfig(EncoderConfig):
    """DeBERTa-base.

    `legacy` is Hugging Face's: True means BERT's masked-LM head, False the head of the original files, which alone may
    have the `enhanced_mask_decoder`. transformers does not implement that decoder.

    Raises:
        ValueError: A term of attention is unknown, or values do not go together.
    """

    model_type: str = "deberta"
    vocab_size: int = 50265
    embedding_size: Annotated[int, integer_rule(1) | NULL] = None  # type: ignore[assignment]  # as hidden_size
    type_vocab_size: Annotated[int, integer_rule(0)] = 0
    layer_norm_eps: float = 1e-7
    relative_attention: Flag = True
    max_relative_positions: Annotated[int, integer_rule(-1)] = -1  # as max_position_embeddings
    pos_att_type: Annotated[str | tuple[str, ...] | None, TEXT | list_rule(TEXT) | NULL] = TERMS
    position_biased_input: Flag = False
    pooler_hidden_act: Activation = "gelu"
    pooler_dropout: Dropout = 0.0
    legacy: Flag = True
    enhanced_mask_decoder: Flag = False

    # Settings of the second version alone.
    position_buckets, share_att_key, norm_rel_ebd, conv_kernel_size = -1, False, "none", 0

    hf_names = MappingProxyType({"classifier_dropout": "cls_dropout", "enhanced_mask_decoder": None})
    # Hugging Face's defaults for the last three differ from all released models.
    required = (*EncoderConfig.required, "relative_attention", "pos_att_type", "position_biased_input")

    def __post_init__(self):
        super().__post_init__()
        if self.embedding_size is None:
            object.__setattr__(self, "embedding_size", self.hidden_size)
        if isinstance(self.pos_att_type, list):
            object.__setattr__(self, "pos_att_type", tuple(self.pos_att_type))
        if not set(self.terms) <= set(TERMS) or len(set(self.terms)) < len(self.terms):
            raise ValueError(
                f"pos_att_type may name {' and '.join(TERMS)}, once each. Received: {self.pos_att_type!r}."
            )
        only = {"attention_head_size": self.head_size, "pooler_hidden_size": self.hidden_size, "talking_head": False}
        for key, value in {**only, "conv_groups": 1}.items():
            if self.extra.get(key, value) != value:
                raise ValueError(f"config.json has {key} = {self.extra[key]!r}; bertzoo computes only {value!r}.")
        if self.enhanced_mask_decoder and (self.legacy or not self._can_have_mask_decoder):
            raise ValueError(
                "enhanced_mask_decoder needs legacy = False, position_biased_input = False and an embedding_size that "
                "is the hidden_size."
            )

    @property
    def _can_have_mask_decoder(self) -> bool:
        """Whether absolute positions are left for the masked-LM head, and fit the encoder's output."""
        return not self.position_biased_input and self.embedding_size == self.hidden_size

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the attention scores besides content to content."""
        return _split(self.pos_att_type) if isinstance(self.pos_att_type, str) else self.pos_att_type or ()

    @property
    def max_distance(self) -> int:
        """Distances from here on are not distinguished."""
        return self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings

    @property
    def span(self) -> int:
        """Half the rows of the table of relative positions."""
        return self.position_buckets if self.position_buckets > 0 else self.max_distance

    def to_hf(self) -> dict[str, Any]:
        content = super().to_hf()
        if self.enhanced_mask_decoder:
            content["bertzoo"] = {**(content.get("bertzoo") or {}), "enhanced_mask_decoder": True}
        return content

    @classmethod
    def _read(cls, content):
        own = content.get("bertzoo") or {}
        return super()._read(content).replace(enhanced_mask_decoder=own.get("enhanced_mask_decoder", False))


@dataclass(frozen=True)
class DebertaV2Config(DebertaConfig):
    """DeBERTa v2 without its options, as in files that do not mention them.

    Raises:
        ValueError: The convolution has no middle, or there are more buckets than distances.
    """

    model_type: str = "deberta-v2"
    vocab_size: int = 128100
    position_buckets: Annotated[int, integer_rule(-1)] = -1
    share_att_key: Flag = False
    norm_rel_ebd: Annotated[str, TEXT] = "none"
    conv_kernel_size: Annotated[int, integer_rule(0)] = 0
    conv_act: Activation = "tanh"

    def __post_init__(self):
        super().__post_init__()
        if self.conv_kernel_size > 0 and self.conv_kernel_size % 2 == 0:
            raise ValueError(f"conv_kernel_size must be odd, or 0 for none. Received: {self.conv_kernel_size}.")
        if self.position_buckets > 0 and self.max_distance <= self.position_buckets // 2 + 1:
            raise ValueError(
                f"position_buckets = {self.position_buckets} needs more than {self.position_buckets // 2 + 1} "
                f"distances; max_relative_positions makes them {self.max_distance}."
            )


class Deberta(Family):
    model_type = "deberta"
    hf_name = "Deberta"
    prefix = "deberta."
    former_prefixes = ("bert.",)
    config_class: type[EncoderConfig] = DebertaConfig
    names = (
        *SHARED_NAMES,
        ("layer_{i}/attention/qkv/kernel", SELF + "in_proj.weight"),
        ("layer_{i}/attention/query_bias", SELF + "q_bias"),
        ("layer_{i}/attention/value_bias", SELF + "v_bias"),
        ("layer_{i}/attention/position_key/kernel", SELF + "pos_proj.weight"),
        *dense_names("layer_{i}/attention/position_query", SELF + "pos_q_proj"),
    )
    heads = {
        **PLAIN_HEADS,
        "masked_lm": Bert.heads["masked_lm"],
        # The files call the first token's dense layer the pooler.
        "classifier": two_dense_head("ForSequenceClassification", "classifier", "pooler.dense"),
        "multiple_choice": two_dense_head("ForMultipleChoice", "multiple_choice", "pooler.dense"),
    }
    has_pooler, pooled_heads = False, ()
    decoder = Bert.decoder
    attention: type[DisentangledAttention] = DisentangledAttentionV1

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        if not config.position_biased_input:
            options["max_positions"] = 0
        if config.embedding_size != config.hidden_size:
            options["projection"] = config.hidden_size
        return super().build_embeddings(config, layer_class=MaskedEmbeddings, **options)

    def build_position_bias(self, config: Any, **options: Any) -> keras.layers.Layer | None:
        if not config.relative_attention:
            return None
        if "layer_norm" in _split(config.norm_rel_ebd):
            options["layer_norm_eps"] = config.layer_norm_eps
        return RelativeEmbeddings(
            config.span, config.hidden_size, initializer_range=config.initializer_range, **options
        )

    def build_block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        attention = self.attention(
            config.hidden_size,
            config.num_attention_heads,
            config.attention_probs_dropout_prob,
            config.initializer_range,
            terms=config.terms,
            max_distance=config.max_distance,
            num_buckets=max(config.position_buckets, 0),
            # Without relative attention, files have no kernels for it.
            share_projections=config.share_att_key or not config.relative_attention,
            position_dropout=config.hidden_dropout_prob,
            **options,
        )
        if index == 0 and config.conv_kernel_size > 0:
            options |= {"layer_class": ConvolvedBlock, "kernel_size": config.conv_kernel_size}
            options["convolution_activation"] = config.conv_act
        return super().build_block(config, index, attention=attention, **options)

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        options = super().head_layer_options(config, head_name)
        if head_name in ("classifier", "multiple_choice"):
            options |= {"dense_activation": config.pooler_hidden_act, "first_dropout": config.pooler_dropout}
        elif head_name == "token_classifier":
            options["dropout_rate"] = config.hidden_dropout_prob
        elif head_name == "masked_lm" and config.enhanced_mask_decoder:
            options |= {"layer_class": EnhancedMaskDecoder, "max_positions": config.max_position_embeddings}
        return options

    def head_tensor_names(self, config: Any, head_name: str) -> Names:
        return (
            ORIGINAL_MASKED_LM
            if head_name == "masked_lm" and not config.legacy
            else super().head_tensor_names(config, head_name)
        )

    def complete_config_from_tensors(self, config: Any, tensor_names: Container[str]) -> EncoderConfig:
        """Only its tensors show that a file of Microsoft has the masked-LM head of the paper."""
        if "lm_predictions.lm_head.bias" not in tensor_names:
            return config
        return config.replace(
            legacy=False, enhanced_mask_decoder=config._can_have_mask_decoder and POSITIONS in tensor_names
        )


class DebertaV2(Deberta):
    model_type = "deberta-v2"
    hf_name = "DebertaV2"
    config_class = DebertaV2Config
    names = (
        *SHARED_NAMES,
        *norm_names("relative/norm", "encoder.LayerNorm"),
        *dense_names("layer_{i}/attention/qkv", SELF + "{query_proj,key_proj,value_proj}"),
        *dense_names("layer_{i}/attention/position_key", SELF + "pos_key_proj"),
        *dense_names("layer_{i}/attention/position_query", SELF + "pos_query_proj"),
        *dense_names("layer_0/convolution", "encoder.conv.conv"),
        *norm_names("layer_0/convolution_norm", "encoder.conv.LayerNorm"),
    )
    heads = {
        **Deberta.heads,
        "rtd": HeadSpec(
            "ForPreTraining",
            (
                *norm_names("rtd/norm", "mask_predictions.LayerNorm"),
                *dense_names("rtd/dense", "mask_predictions.dense"),
                *dense_names("rtd/logits", "mask_predictions.classifier"),
            ),
        ),
    }
    attention = DisentangledAttention

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        options = super().head_layer_options(config, head_name)
        return (
            options | {"layer_class": ContextHead, "layer_norm_eps": config.layer_norm_eps}
            if head_name == "rtd"
            else options
        )


def _split(terms: str) -> tuple[str, ...]:
    """The words of "c2p|p2c"."""
    return tuple(term.strip() for term in terms.lower().split("|"))
