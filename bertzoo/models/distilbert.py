"""DistilBERT (Sanh et al. 2019): BERT without segments and pooler, under other names."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras

from bertzoo.models.bert import EMBEDDINGS
from bertzoo.models.config import Dropout, EncoderConfig, NoSegments
from bertzoo.models.family import Family
from bertzoo.models.heads import PLAIN_HEADS, dense_names, masked_lm_head, norm_names, two_dense_head

LAYER = "transformer.layer.{i}."


@dataclass(frozen=True)
class DistilBertConfig(EncoderConfig):
    """DistilBERT-base. `classifier_dropout` is for classification and multiple choice, `qa_dropout` for answers."""

    model_type: str = "distilbert"
    num_hidden_layers: int = 6
    type_vocab_size: NoSegments = 0
    classifier_dropout: float | None = 0.2
    qa_dropout: Dropout = 0.1

    hf_names = MappingProxyType(
        {
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "classifier_dropout": "seq_classif_dropout",
            "type_vocab_size": None,
            "layer_norm_eps": None,
        }
    )


class DistilBert(Family):
    model_type = "distilbert"
    hf_name = "DistilBert"
    prefix = "distilbert."
    config_class = DistilBertConfig
    names = (
        *EMBEDDINGS,
        *dense_names("layer_{i}/attention/qkv", LAYER + "attention.{q_lin,k_lin,v_lin}"),
        *dense_names("layer_{i}/attention/output", LAYER + "attention.out_lin"),
        *norm_names("layer_{i}/attention_norm", LAYER + "sa_layer_norm"),
        *dense_names("layer_{i}/intermediate", LAYER + "ffn.lin1"),
        *dense_names("layer_{i}/output", LAYER + "ffn.lin2"),
        *norm_names("layer_{i}/output_norm", LAYER + "output_layer_norm"),
    )
    heads = {
        **PLAIN_HEADS,
        "masked_lm": masked_lm_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        "classifier": two_dense_head("ForSequenceClassification", "classifier", "pre_classifier"),
        "multiple_choice": two_dense_head("ForMultipleChoice", "multiple_choice", "pre_classifier"),
    }
    has_pooler, pooled_heads = False, ()
    decoder = "vocab_projector.weight"

    def build_block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        return super().build_block(config, index, attention_output_dropout=0.0, **options)

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        options = super().head_layer_options(config, head_name)
        if head_name in ("classifier", "multiple_choice"):
            options |= {"dense_activation": "relu", "first_dropout": 0.0}
        elif head_name == "qa":
            options["dropout_rate"] = config.qa_dropout
        elif head_name == "token_classifier":
            options["dropout_rate"] = config.hidden_dropout_prob
        return options
