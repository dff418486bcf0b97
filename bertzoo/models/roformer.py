"""RoFormer (Su et al. 2021): BERT with rotary positions, without a pooler; its embeddings may be narrow."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import keras

from bertzoo.checkpoints.json_files import NULL, choice_rule, integer_rule
from bertzoo.layers.roformer import RoFormerAttention, RotaryTable
from bertzoo.models.bert import Bert
from bertzoo.models.config import EncoderConfig, Flag
from bertzoo.models.family import Family
from bertzoo.models.heads import dense_names
from bertzoo.models.roberta import CLASSIFIER


@dataclass(frozen=True)
class RoFormerConfig(EncoderConfig):
    """RoFormer-base, Chinese. `summary_type` says which tokens' vectors multiple choice reads.

    Raises:
        ValueError: A head's width is odd, so that it can't be turned in pairs.
    """

    model_type: str = "roformer"
    vocab_size: int = 50000
    embedding_size: Annotated[int, integer_rule(1) | NULL] = None  # type: ignore[assignment]  # as hidden_size
    max_position_embeddings: int = 1536
    rotary_value: Flag = False
    summary_type: Annotated[str, choice_rule("last", "first", "mean")] = "last"

    hf_names = MappingProxyType({"classifier_dropout": None})

    def __post_init__(self):
        super().__post_init__()
        if self.embedding_size is None:
            object.__setattr__(self, "embedding_size", self.hidden_size)
        if self.head_size % 2:
            raise ValueError(
                f"hidden_size / num_attention_heads must be even. Received: {self.hidden_size} and "
                f"{self.num_attention_heads}."
            )


class RoFormer(Family):
    model_type = "roformer"
    hf_name = "RoFormer"
    prefix = "roformer."
    config_class = RoFormerConfig
    names = (
        *(pair for pair in Bert.names if not pair[0].startswith(("pooler/", "embeddings/position"))),
        *dense_names("embeddings/projection", "embeddings_project"),
        ("relative/table", "encoder.embed_positions.weight"),
    )
    heads = {**{name: head for name, head in Bert.heads.items() if name != "pair"}, "classifier": CLASSIFIER}
    computed_parts = ("relative",)  # Flax's files have no sines
    has_pooler, pooled_heads = False, ()
    heads_read_first_token = False
    decoder = Bert.decoder

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        narrow = config.embedding_size != config.hidden_size
        projection = config.hidden_size if narrow else None
        return super().build_embeddings(config, max_positions=0, projection=projection, **options)

    def build_position_bias(self, config: Any, **options: Any) -> keras.layers.Layer | None:
        return RotaryTable(config.max_position_embeddings, config.head_size, **options)

    def build_block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        attention = RoFormerAttention(
            config.hidden_size,
            config.num_attention_heads,
            config.attention_probs_dropout_prob,
            config.initializer_range,
            rotary_value=config.rotary_value,
            **options,
        )
        return super().build_block(config, index, attention=attention, **options)

    def head_pooling(self, config: Any, head_name: str) -> str:
        """As the family's; what multiple choice reads is Hugging Face's choice, which takes padding for tokens: by
        default the last of the longest row, so that scores depend on the other rows."""
        if head_name != "multiple_choice":
            return "first"
        return {"first": "first", "last": "last place", "mean": "mean of places"}[config.summary_type]

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        """As the family's; raises ValueError where the file describes a summary with layers of its own."""
        options = super().head_layer_options(config, head_name)
        if head_name == "classifier":
            options["dense_activation"] = config.hidden_act
        elif head_name == "multiple_choice":
            for key in ("summary_use_proj", "summary_activation"):
                if value := config.extra.get(key):
                    raise ValueError(f"config.json has {key} = {value!r}; bertzoo's multiple choice has none.")
            options["dropout_rate"] = 0.0
        return options
