"""ELECTRA (Clark et al. 2020), discriminator and generator: no pooler, and a projection of narrow embeddings."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras

from bertzoo.checkpoints.json_files import NULL, integer
from bertzoo.models.bert import Bert
from bertzoo.models.config import ACTIVATION, DROPOUT, EncoderConfig
from bertzoo.models.family import PLAIN_HEADS, Family, Head, dense, norm
from bertzoo.models.roberta import CLASSIFIER


@dataclass(frozen=True)
class ElectraConfig(EncoderConfig):
    """ELECTRA-small. `summary_activation` and `summary_last_dropout` are for multiple choice."""

    model_type: str = "electra"
    embedding_size: int = 128
    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    summary_activation: str = "gelu"
    summary_last_dropout: float = 0.1

    rules = MappingProxyType(
        {
            **EncoderConfig.rules,
            "embedding_size": integer(1),
            "summary_activation": ACTIVATION | NULL,
            "summary_last_dropout": DROPOUT,
        }
    )
    required = (*EncoderConfig.required, "embedding_size")


class Electra(Family):
    model_type = "electra"
    hf_name = "Electra"
    prefix = "electra."
    config_class = ElectraConfig
    names = (
        *(pair for pair in Bert.names if not pair[0].startswith("pooler/")),
        *dense("embeddings/projection", "embeddings_project"),
    )
    heads = {
        **PLAIN_HEADS,
        "masked_lm": Head(
            "ForMaskedLM",
            (
                *dense("masked_lm/dense", "generator_predictions.dense"),
                *norm("masked_lm/norm", "generator_predictions.LayerNorm"),
                ("masked_lm/bias", "generator_lm_head.bias"),
            ),
        ),
        "rtd": Head(
            "ForPreTraining",
            (
                *dense("rtd/dense", "discriminator_predictions.dense"),
                *dense("rtd/logits", "discriminator_predictions.dense_prediction"),
            ),
        ),
        "classifier": CLASSIFIER,
        "multiple_choice": Head(
            "ForMultipleChoice",
            (
                *dense("multiple_choice/dense", "sequence_summary.summary"),
                *dense("multiple_choice/logits", "classifier"),
            ),
        ),
    }
    has_pooler = classifier_uses_pooler = multiple_choice_uses_pooler = False
    decoder = "generator_lm_head.weight"
    inert_tensors = ("embeddings.position_ids", "embeddings.token_type_ids", "generator_lm_head.weight")

    def embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        narrow = config.embedding_size != config.hidden_size
        return super().embeddings(config, projection=config.hidden_size if narrow else None, **options)

    def head_options(self, config: Any, name: str) -> dict[str, Any]:
        """As the family's; raises ValueError where the file describes another summary than that of the first token."""
        if name == "multiple_choice":
            for key, only in {"summary_type": "first", "summary_use_proj": True}.items():
                value = config.extra.get(key, only)
                if value != only:
                    raise ValueError(f"config.json has {key} = {value!r}; bertzoo's multiple choice has {only!r}.")
            if not config.summary_activation:
                raise ValueError("config.json has no summary_activation; bertzoo's multiple choice needs one.")
            return {
                "dropout_rate": config.summary_last_dropout,
                "first_dropout": 0.0,
                "dense_activation": config.summary_activation,
            }
        differing = {"classifier": {"dense_activation": "gelu"}, "masked_lm": {"activation": "gelu"}}
        return {**super().head_options(config, name), **differing.get(name, {})}
