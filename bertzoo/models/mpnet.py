"""MPNet (Song et al. 2020): RoBERTa's positions, and a learnt bias by relative distance that all blocks share."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import keras

from bertzoo.checkpoints.json_files import Rule
from bertzoo.layers import RelativeBias
from bertzoo.models.bert import EMBEDDINGS, FEED_FORWARD_AND_POOLER
from bertzoo.models.config import NoSegments
from bertzoo.models.heads import dense_names, norm_names
from bertzoo.models.roberta import Roberta, RobertaConfig

PAD_ID = 1  # Hugging Face counts positions with it, whatever pad_token_id says
BUCKETS = 32


@dataclass(frozen=True)
class MPNetConfig(RobertaConfig):
    """MPNet-base.

    Raises:
        ValueError: `relative_attention_num_buckets` is not 32, for which the buckets are defined.
    """

    model_type: str = "mpnet"
    vocab_size: int = 30527
    type_vocab_size: NoSegments = 0
    relative_attention_num_buckets: Annotated[int, Rule(f"{BUCKETS}", lambda value: value == BUCKETS)] = BUCKETS

    hf_names = MappingProxyType({"type_vocab_size": None, "classifier_dropout": None})

    @property
    def max_length(self) -> int:
        return self.max_position_embeddings - PAD_ID - 1


class MPNet(Roberta):
    model_type = "mpnet"
    hf_name = "MPNet"
    prefix = "mpnet."
    config_class = MPNetConfig
    names = (
        *EMBEDDINGS,
        ("relative/table", "encoder.relative_attention_bias.weight"),
        *dense_names("layer_{i}/attention/qkv", "encoder.layer.{i}.attention.attn.{q,k,v}"),
        *dense_names("layer_{i}/attention/output", "encoder.layer.{i}.attention.attn.o"),
        *norm_names("layer_{i}/attention_norm", "encoder.layer.{i}.attention.LayerNorm"),
        *FEED_FORWARD_AND_POOLER,
    )

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        return super().build_embeddings(config.replace(pad_token_id=PAD_ID), **options)

    def build_position_bias(self, config: Any, **options: Any) -> keras.layers.Layer | None:
        return RelativeBias(config.num_attention_heads, BUCKETS, initializer_range=config.initializer_range, **options)
