"""A family of encoders: its configuration, layers and heads, and Hugging Face's names of its tensors."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras

from bertzoo.layers import ClassificationHead, Embeddings, EncoderBlock, MaskedLMHead, Pooler
from bertzoo.models.config import EncoderConfig
from bertzoo.types import Tensor

# Pairs (our weight, their tensor). `{i}` stands for a layer's number; `{a,b,c}` lists tensors that we keep as one.
Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Head:
    """One head of a family: the suffix of Hugging Face's class for it, and the names of its tensors."""

    hf_class: str
    names: Names


def dense(keras_name: str, hf_name: str) -> Names:
    """The weights of a dense layer."""
    return (f"{keras_name}/kernel", f"{hf_name}.weight"), (f"{keras_name}/bias", f"{hf_name}.bias")


def norm(keras_name: str, hf_name: str) -> Names:
    """The weights of a normalisation."""
    return (f"{keras_name}/gamma", f"{hf_name}.weight"), (f"{keras_name}/beta", f"{hf_name}.bias")


# Heads of one dense layer, which all families name alike.
PLAIN_HEADS = {
    "token_classifier": Head("ForTokenClassification", dense("token_classifier/logits", "classifier")),
    "qa": Head("ForQuestionAnswering", dense("qa/logits", "qa_outputs")),
    "multiple_choice": Head("ForMultipleChoice", dense("multiple_choice/logits", "classifier")),
}


FIXED_LABELS = {"qa": 2, "multiple_choice": 1, "pair": 2, "rtd": 1}


class Family:
    """A family of encoders. The methods here make BERT; a family overrides what differs.

    The `options` of the methods go to the layer's constructor: its `dtype`, and what an overriding method sets.
    """

    model_type: str
    hf_name: str  # as in Hugging Face's class names: "Bert" in BertForMaskedLM
    prefix: str  # of the encoder's tensors in files of models with a head
    former_prefixes: tuple[str, ...] = ()  # other prefixes that files may have
    config_class: type[EncoderConfig] = EncoderConfig
    names: Names
    heads: Mapping[str, Head]
    has_pooler: bool = True
    # Whether these heads read the pooler; otherwise they read `head_vectors`.
    classifier_uses_pooler: bool = True
    multiple_choice_uses_pooler: bool = True
    # Whether `head_vectors` reads the first token alone, so that the last block need not compute the others.
    heads_read_first_token: bool = True
    # The masked-LM decoder's kernel, which files have to themselves where it is not the token table.
    decoder: str | None = None
    # Buffers, and copies of tied tensors, that files may hold besides the weights.
    inert_tensors: tuple[str, ...] = ()
    # The file's name -> the table's, for copies that stand in where the tensor itself is absent.
    aliases: Mapping[str, str] = MappingProxyType({})

    def embeddings(
        self, config: EncoderConfig, layer: type[Embeddings] = Embeddings, **options: Any
    ) -> keras.layers.Layer:
        """Token ids -> (batch, length, hidden)."""
        options.setdefault("max_positions", config.max_position_embeddings)
        return layer(
            config.vocab_size,
            config.embedding_size,
            segments=config.type_vocab_size,
            hidden_dropout=config.hidden_dropout_prob,
            layer_norm_eps=config.layer_norm_eps,
            initializer_range=config.initializer_range,
            **options,
        )

    def position_bias(self, config: EncoderConfig, **options: Any) -> keras.layers.Layer | None:
        """What makes, once per forward pass, something of relative positions that the attention of all blocks uses."""
        return None

    def block(
        self, config: EncoderConfig, index: int, layer: type[EncoderBlock] = EncoderBlock, **options: Any
    ) -> keras.layers.Layer:
        """Block `index`: (batch, length, hidden) -> the same."""
        options.setdefault("name", f"layer_{index}")
        return layer(
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

    def layer_schedule(self, config: EncoderConfig) -> tuple[int, ...]:
        """The blocks' indices in the order in which they are applied; each index from 0 occurs, once or more often."""
        return tuple(range(config.num_hidden_layers))

    def pooler(self, config: EncoderConfig, **options: Any) -> keras.layers.Layer | None:
        """(batch, length, hidden) -> (batch, hidden), or None where the family has no pooler."""
        if not self.has_pooler:
            return None
        return Pooler(config.hidden_size, initializer_range=config.initializer_range, **options)

    def head_vectors(self, config: EncoderConfig, sequence: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """What heads of whole inputs read instead of the pooler: (batch, length, hidden) -> (batch, hidden)."""
        return sequence[:, 0]

    def head(
        self, config: EncoderConfig, name: str, num_labels: int | None = None, **options: Any
    ) -> keras.layers.Layer:
        """A head by its name in `heads`.

        "classifier": (batch, hidden) -> (batch, labels). "token_classifier": (batch, length, hidden) -> (batch, length,
        labels). "qa": (batch, length, hidden) -> (batch, length, 2), the logits of an answer's start and end.
        "multiple_choice": (choices, hidden) -> (choices, 1). "pair": pooled (batch, hidden) -> (batch, 2), whether two
        segments belong together. "rtd": (batch, length, hidden) -> (batch, length, 1), whether a token was replaced.
        "masked_lm": see `MaskedLMHead`.

        Raises:
            ValueError: The file describes a head that bertzoo does not have.
        """
        options = {"initializer_range": config.initializer_range, **self.head_options(config, name), **options}
        if name == "masked_lm":
            return self._masked_lm(config, **options)
        layer = options.pop("layer", ClassificationHead)
        return layer(num_labels or FIXED_LABELS[name], name=name, **options)

    def head_options(self, config: EncoderConfig, name: str) -> dict[str, Any]:
        """The arguments of a head's layer, and as `layer` its class. A family overrides those that differ."""
        if name == "masked_lm":
            return {"activation": config.hidden_act}
        if name == "rtd":
            return {"dropout_rate": 0.0, "dense_activation": config.hidden_act}
        return {"dropout_rate": 0.0 if name in ("qa", "pair") else self.head_dropout(config)}

    def _masked_lm(self, config, layer=MaskedLMHead, **options):
        names = dict(self.names_of_head(config, "masked_lm"))
        tied = "masked_lm/decoder" not in names
        if tied and not is_tied(config):
            raise ValueError("config.json has tie_word_embeddings = false; this head's decoder is the token table.")
        return layer(
            config.vocab_size, config.embedding_size, layer_norm_eps=config.layer_norm_eps, tied=tied, **options
        )

    def names_of_head(self, config: EncoderConfig, head: str) -> Names:
        """The names of a head's tensors, where the configuration decides between several."""
        return self.names_of_decoder(config, head, self.heads[head].names)

    def names_of_decoder(self, config: EncoderConfig, head: str, names: Names) -> Names:
        """`names`, and those of a masked-LM decoder that is not the token table, whose bias is its own too."""
        if head != "masked_lm" or self.decoder is None or is_tied(config):
            return names
        bias = ("masked_lm/bias", self.decoder.removesuffix("weight") + "bias")
        return (*(pair for pair in names if pair[0] != bias[0]), ("masked_lm/decoder", self.decoder), bias)

    def infer_config_from_tensors(self, config: EncoderConfig, tensors: Container[str]) -> EncoderConfig:
        """The configuration of a checkpoint, with what only the presence of tensors tells.

        `tensors` has the names as in the tables, without prefix.
        """
        return config

    def counts(self, config: EncoderConfig) -> dict[str, int]:
        """How far the indices in `names` run."""
        return {"i": config.num_hidden_layers}

    def is_inert(self, tensor: str) -> bool:
        """Whether a tensor of the file holds no weight, or a copy of one that is tied to another."""
        return tensor in self.inert_tensors

    def head_dropout(self, config: EncoderConfig) -> float:
        """Dropout before a task's last layer."""
        return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout


def is_tied(config: EncoderConfig) -> bool:
    """Whether the masked-LM decoder is the token table."""
    return config.extra.get("tie_word_embeddings") is not False
