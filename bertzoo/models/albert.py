"""ALBERT (Lan et al. 2020): narrow embeddings with a projection, and blocks that share their weights within a group."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras

from bertzoo.models.bert import EMBEDDINGS
from bertzoo.models.config import EncoderConfig, Size
from bertzoo.models.family import Family
from bertzoo.models.heads import PLAIN_HEADS, dense_names, masked_lm_head, norm_names, one_dense_head

LAYER = "encoder.albert_layer_groups.{g}.albert_layers.{j}."


@dataclass(frozen=True)
class AlbertConfig(EncoderConfig):
    """ALBERT-base v2.

    Raises:
        ValueError: There are more groups than layers.
    """

    model_type: str = "albert"
    vocab_size: int = 30000
    embedding_size: Size = 128
    num_hidden_groups: Size = 1
    inner_group_num: Size = 1
    hidden_act: str = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout: float | None = 0.1

    hf_names = MappingProxyType({"classifier_dropout": "classifier_dropout_prob"})

    def __post_init__(self):
        super().__post_init__()
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups must lie between 1 and num_hidden_layers. Received: {self.num_hidden_groups} and "
                f"{self.num_hidden_layers}."
            )


class Albert(Family):
    model_type = "albert"
    hf_name = "Albert"
    prefix = "albert."
    config_class = AlbertConfig
    names = (
        *EMBEDDINGS,
        *dense_names("embeddings/projection", "encoder.embedding_hidden_mapping_in"),
        *dense_names("group_{g}_layer_{j}/attention/qkv", LAYER + "attention.{query,key,value}"),
        *dense_names("group_{g}_layer_{j}/attention/output", LAYER + "attention.dense"),
        *norm_names("group_{g}_layer_{j}/attention_norm", LAYER + "attention.LayerNorm"),
        *dense_names("group_{g}_layer_{j}/intermediate", LAYER + "ffn"),
        *dense_names("group_{g}_layer_{j}/output", LAYER + "ffn_output"),
        *norm_names("group_{g}_layer_{j}/output_norm", LAYER + "full_layer_layer_norm"),
        *dense_names("pooler/dense", "pooler"),
    )
    heads = {
        "masked_lm": masked_lm_head("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
        "pair": one_dense_head("ForPreTraining", "pair", "sop_classifier.classifier"),
        "classifier": one_dense_head("ForSequenceClassification", "classifier"),
        **PLAIN_HEADS,
    }
    decoder = "predictions.decoder.weight"

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        return super().build_embeddings(config, projection=config.hidden_size, **options)

    def block_order(self, config: Any) -> tuple[int, ...]:
        layers_per_group = config.num_hidden_layers / config.num_hidden_groups
        groups = [int(i / layers_per_group) for i in range(config.num_hidden_layers)]
        return tuple(g * config.inner_group_num + j for g in groups for j in range(config.inner_group_num))

    def build_block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        group, layer = divmod(index, config.inner_group_num)
        return super().build_block(config, index, name=f"group_{group}_layer_{layer}", **options)

    def placeholder_counts(self, config: Any) -> dict[str, int]:
        return {"g": config.num_hidden_groups, "j": config.inner_group_num}

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        return (
            {"dropout_rate": self.head_dropout(config)}
            if head_name == "pair"
            else super().head_layer_options(config, head_name)
        )
