"""ELECTRA (Clark et al. 2020), discriminator and generator: no pooler, and a projection of narrow embeddings."""

from dataclasses import dataclass
from typing import Annotated, Any

import keras

from bertzoo.checkpoints.json_files import NULL
from bertzoo.models.bert import Bert
from bertzoo.models.config import ACTIVATION, Dropout, EncoderConfig, Size
from bertzoo.models.family import Family
from bertzoo.models.heads import PLAIN_HEADS, dense_names, masked_lm_head, two_dense_head
from bertzoo.models.roberta import CLASSIFIER


@dataclass(frozen=True)
class ElectraConfig(EncoderConfig):
    """ELECTRA-small. `summary_activation` and `summary_last_dropout` are for multiple choice."""

    model_type: str = "electra"
    embedding_size: Size = 128
    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    summary_activation: Annotated[str | None, ACTIVATION | NULL] = "gelu"
    summary_last_dropout: Dropout = 0.1

    required = (*EncoderConfig.required, "embedding_size")


class Electra(Family):
    model_type = "electra"
    hf_name = "Electra"
    prefix = "electra."
    config_class = ElectraConfig
    names = (
        *(pair for pair in Bert.names if not pair[0].startswith("pooler/")),
        *dense_names("embeddings/projection", "embeddings_project"),
    )
    heads = {
        **PLAIN_HEADS,
        "masked_lm": masked_lm_head(
            "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"
        ),
        "rtd": two_dense_head(
            "ForPreTraining", "rtd", "discriminator_predictions.dense", "discriminator_predictions.dense_prediction"
        ),
        "classifier": CLASSIFIER,
        "multiple_choice": two_dense_head("ForMultipleChoice", "multiple_choice", "sequence_summary.summary"),
    }
    has_pooler, pooled_heads = False, ()
    decoder = "generator_lm_head.weight"

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        narrow = config.embedding_size != config.hidden_size
        return super().build_embeddings(config, projection=config.hidden_size if narrow else None, **options)

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        """As the family's; raises ValueError where the file describes another summary than that of the first token."""
        options = super().head_layer_options(config, head_name)
        if head_name == "classifier":
            options["dense_activation"] = "gelu"
        elif head_name == "masked_lm":
            options["activation"] = "gelu"
        elif head_name == "multiple_choice":
            for key, only in {"summary_type": "first", "summary_use_proj": True}.items():
                value = config.extra.get(key, only)
                if value != only:
                    raise ValueError(f"config.json has {key} = {value!r}; bertzoo's multiple choice has {only!r}.")
            if not config.summary_activation:
                raise ValueError("config.json has no summary_activation; bertzoo's multiple choice needs one.")
            options |= {"dropout_rate": config.summary_last_dropout, "dense_activation": config.summary_activation}
            options["first_dropout"] = 0.0
        return options
