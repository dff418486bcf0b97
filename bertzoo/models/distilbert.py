"""DistilBERT (Sanh et al. 2019): BERT without segments and pooler, under other names."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras

from bertzoo.checkpoints.json_files import integer
from bertzoo.models.config import DROPOUT, EncoderConfig
from bertzoo.models.family import PLAIN_HEADS, Family, Head, dense, norm

LAYER = "transformer.layer.{i}."
PRE_CLASSIFIER = {"dense_activation": "relu", "first_dropout": 0.0}


@dataclass(frozen=True)
class DistilBertConfig(EncoderConfig):
    """DistilBERT-base. `classifier_dropout` is for classification and multiple choice, `qa_dropout` for answers."""

    model_type: str = "distilbert"
    num_hidden_layers: int = 6
    type_vocab_size: int = 0
    classifier_dropout: float | None = 0.2
    qa_dropout: float = 0.1

    rules = MappingProxyType({**EncoderConfig.rules, "type_vocab_size": integer(0, 0), "qa_dropout": DROPOUT})
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
        ("embeddings/token", "embeddings.word_embeddings.weight"),
        ("embeddings/position", "embeddings.position_embeddings.weight"),
        *norm("embeddings/norm", "embeddings.LayerNorm"),
        *dense("layer_{i}/attention/qkv", LAYER + "attention.{q_lin,k_lin,v_lin}"),
        *dense("layer_{i}/attention/output", LAYER + "attention.out_lin"),
        *norm("layer_{i}/attention_norm", LAYER + "sa_layer_norm"),
        *dense("layer_{i}/intermediate", LAYER + "ffn.lin1"),
        *dense("layer_{i}/output", LAYER + "ffn.lin2"),
        *norm("layer_{i}/output_norm", LAYER + "output_layer_norm"),
    )
    heads = {
        **PLAIN_HEADS,
        "masked_lm": Head(
            "ForMaskedLM",
            (
                *dense("masked_lm/dense", "vocab_transform"),
                *norm("masked_lm/norm", "vocab_layer_norm"),
                ("masked_lm/bias", "vocab_projector.bias"),
            ),
        ),
        "classifier": Head(
            "ForSequenceClassification",
            (
                *dense("classifier/dense", "pre_classifier"),
                *dense("classifier/logits", "classifier"),
            ),
        ),
        "multiple_choice": Head(
            "ForMultipleChoice",
            (
                *dense("multiple_choice/dense", "pre_classifier"),
                *dense("multiple_choice/logits", "classifier"),
            ),
        ),
    }
    has_pooler = classifier_uses_pooler = multiple_choice_uses_pooler = False
    decoder = "vocab_projector.weight"
    inert_tensors = ("embeddings.position_ids", "vocab_projector.weight")

    def block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        return super().block(config, index, attention_output_dropout=0.0, **options)

    def head_options(self, config: Any, name: str) -> dict[str, Any]:
        differing = {
            "classifier": PRE_CLASSIFIER,
            "multiple_choice": PRE_CLASSIFIER,
            "qa": {"dropout_rate": config.qa_dropout},
            "token_classifier": {"dropout_rate": config.hidden_dropout_prob},
        }
        return {**super().head_options(config, name), **differing.get(name, {})}
