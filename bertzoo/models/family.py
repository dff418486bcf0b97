"""A family of encoders: its configuration, its layers, and Hugging Face's names of its tensors."""

from typing import Any

from keras.layers import Layer

from bertzoo.layers import Embeddings, EncoderBlock, Pooler
from bertzoo.models.config import EncoderConfig
from bertzoo.models.heads import FamilyHeads, Names


class Family(FamilyHeads):
    """A family of encoders. The methods here make BERT; a family overrides what differs.

    The `options` of the methods go to the layer's constructor: its `dtype`, and what an overriding method sets.
    """

    model_type: str
    hf_name: str  # as in Hugging Face's class names: "Bert" in BertForMaskedLM
    prefix: str  # of the encoder's tensors in files of models with a head
    former_prefixes: tuple[str, ...] = ()  # other prefixes that files may have
    config_class: type[EncoderConfig] = EncoderConfig
    former_model_types: tuple[str, ...] = ()  # other values of model_type in files
    names: Names
    alternative_names: Names = ()  # another spelling, which is read but not written
    computed_parts: tuple[str, ...] = ()  # whose initial values are the right ones, so that files may lack them
    has_pooler: bool = True
    has_pooler_alone: bool = True  # whether Hugging Face's model without a head makes the pooler

    def build_embeddings(self, config: Any, *, layer_class: type = Embeddings, **options: Any) -> Layer:
        """Token ids -> (batch, length, hidden)."""
        options.setdefault("max_positions", config.max_position_embeddings)
        return layer_class(
            config.vocab_size,
            config.embedding_size,
            num_segments=config.type_vocab_size,
            hidden_dropout=config.hidden_dropout_prob,
            layer_norm_eps=config.layer_norm_eps,
            initializer_range=config.initializer_range,
            **options,
        )

    def build_position_bias(self, config: Any, **options: Any) -> Layer | None:
        """A layer that computes, once per forward pass, relative positions for the attention of all blocks."""
        return None

    def build_block(self, config: Any, index: int, *, layer_class: type = EncoderBlock, **options: Any) -> Layer:
        """Block `index`: (batch, length, hidden) -> the same."""
        options.setdefault("name", f"layer_{index}")
        return layer_class(
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
            config.hidden_act,
            config.hidden_dropout_prob,
            config.attention_probs_dropout_prob,
            config.layer_norm_eps,
            config.initializer_range,
            **options,
        )

    def block_order(self, config: Any) -> tuple[int, ...]:
        """The blocks' indices in the order in which they are applied; each index from 0 occurs, once or more often."""
        return tuple(range(config.num_hidden_layers))

    def build_pooler(self, config: Any, **options: Any) -> Layer | None:
        """(batch, length, hidden) -> (batch, hidden), or None where the family has no pooler."""
        if not self.has_pooler:
            return None
        return Pooler(config.hidden_size, initializer_range=config.initializer_range, **options)
