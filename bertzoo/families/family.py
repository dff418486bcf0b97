"""What a family may state: its configuration, its parts, its heads, and how Hugging Face names its tensors."""

from dataclasses import dataclass
from typing import Any

import keras

from bertzoo.config import EncoderConfig
from bertzoo.layers import ClassificationHead, Embeddings, EncoderBlock, MaskedLMHead, PairHead, Pooler

# Pairs (our weight, their tensor). `{i}` stands for a layer's number; `{a,b,c}` lists tensors that we keep fused as one.
Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Head:
    """One head of a family: the suffix of Hugging Face's class for it, and the names of its tensors."""

    hf_class: str
    names: Names


class Family:
    """A family of encoders. The methods here make BERT; a family overrides what differs."""

    model_type: str
    hf_name: str  # as in Hugging Face's class names: "Bert" in BertForMaskedLM
    prefix: str  # of the encoder's tensors in files of models with a head
    config_class: type[EncoderConfig] = EncoderConfig
    names: Names
    heads: dict[str, Head]
    classifier_pools: bool = True
    # Buffers, and copies of tied tensors, that files may hold besides the weights.
    inert_tensors: tuple[str, ...] = (
        "embeddings.position_ids", "embeddings.token_type_ids", "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
    )

    def embeddings(self, config: EncoderConfig, **dtype: Any) -> keras.layers.Layer:
        """Token ids -> (batch, length, embedding size)."""
        return Embeddings(
            config.vocab_size, config.embedding_size, config.max_position_embeddings, config.type_vocab_size,
            hidden_dropout=config.hidden_dropout_prob, layer_norm_eps=config.layer_norm_eps,
            initializer_range=config.initializer_range, **dtype,
        )

    def block(self, config: EncoderConfig, index: int, **dtype: Any) -> keras.layers.Layer:
        """Layer `index`: (batch, length, hidden) -> the same."""
        return EncoderBlock(
            config.hidden_size, config.num_attention_heads, config.intermediate_size, config.hidden_act,
            config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.layer_norm_eps,
            config.initializer_range, name=f"layer_{index}", **dtype,
        )

    def pooler(self, config: EncoderConfig, **dtype: Any) -> keras.layers.Layer | None:
        """(batch, length, hidden) -> (batch, hidden), or None where the family has no pooler."""
        return Pooler(config.hidden_size, initializer_range=config.initializer_range, **dtype)

    def classifier(self, config: EncoderConfig, num_labels: int, **dtype: Any) -> keras.layers.Layer:
        """The head of sequence classification, applied to the pooled output if `classifier_pools`."""
        return ClassificationHead(num_labels, self.head_dropout(config), None, config.initializer_range, **dtype)

    def masked_lm(self, config: EncoderConfig, **dtype: Any) -> keras.layers.Layer:
        """The head of masked language modelling."""
        return MaskedLMHead(
            config.vocab_size, config.embedding_size, config.hidden_act, config.layer_norm_eps,
            config.initializer_range, **dtype,
        )

    def pair(self, config: EncoderConfig, **dtype: Any) -> keras.layers.Layer:
        """The head that judges whether two segments belong together."""
        return PairHead(initializer_range=config.initializer_range, **dtype)

    def counts(self, config: EncoderConfig) -> dict[str, int]:
        """How far the indices in `names` run."""
        return {"i": config.num_hidden_layers}

    def is_inert(self, tensor: str) -> bool:
        """Whether a tensor of the file holds no weight, or a copy of one that is tied to another."""
        return tensor in self.inert_tensors

    def head_dropout(self, config: EncoderConfig) -> float:
        """Dropout before a task's last layer."""
        return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
