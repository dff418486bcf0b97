"""RoBERTa (Liu et al. 2019), DistilRoBERTa, XLM-R (Conneau et al. 2020) and CamemBERT (Martin et al. 2020)."""

from dataclasses import dataclass
from typing import Any

import keras

from bertzoo.models.bert import Bert
from bertzoo.models.config import EncoderConfig, PaddingId
from bertzoo.models.family import Family
from bertzoo.models.heads import PLAIN_HEADS, masked_lm_head, two_dense_head

CLASSIFIER = two_dense_head("ForSequenceClassification", "classifier", "classifier.dense", "classifier.out_proj")


@dataclass(frozen=True)
class RobertaConfig(EncoderConfig):
    """RoBERTa-base. Two rows of the position table are never used by tokens: positions start after the padding id."""

    model_type: str = "roberta"
    vocab_size: int = 50265
    max_position_embeddings: int = 514
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    pad_token_id: PaddingId = 1

    # Hugging Face's defaults for the last differ from all released models.
    required = (*EncoderConfig.required, "max_position_embeddings", "layer_norm_eps")

    def __post_init__(self):
        super().__post_init__()
        if self.max_length < 1:
            raise ValueError(
                f"max_position_embeddings = {self.max_position_embeddings} leaves no position after the padding's, "
                f"pad_token_id = {self.pad_token_id}."
            )

    @property
    def max_length(self) -> int:
        return self.max_position_embeddings - self.pad_token_id - 1


@dataclass(frozen=True)
class XLMRobertaConfig(RobertaConfig):
    """XLM-R base."""

    model_type: str = "xlm-roberta"
    vocab_size: int = 250002


@dataclass(frozen=True)
class CamembertConfig(RobertaConfig):
    """CamemBERT-base."""

    model_type: str = "camembert"
    vocab_size: int = 32005


class Roberta(Family):
    model_type = "roberta"
    hf_name = "Roberta"
    prefix = "roberta."
    config_class: type[EncoderConfig] = RobertaConfig
    names = Bert.names
    heads = {
        "masked_lm": masked_lm_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        "classifier": CLASSIFIER,
        **PLAIN_HEADS,
    }
    pooled_heads = ("multiple_choice",)
    decoder = "lm_head.decoder.weight"

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        return super().build_embeddings(config, pad_id=config.pad_token_id, **options)

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        options = super().head_layer_options(config, head_name)
        if head_name == "classifier":
            options["dense_activation"] = "tanh"
        elif head_name == "masked_lm":
            options["activation"] = "gelu"
        elif head_name == "multiple_choice":
            options["dropout_rate"] = config.hidden_dropout_prob
        return options


class XLMRoberta(Roberta):
    model_type = "xlm-roberta"
    hf_name = "XLMRoberta"
    config_class = XLMRobertaConfig


class Camembert(Roberta):
    model_type = "camembert"
    hf_name = "Camembert"
    config_class = CamembertConfig
