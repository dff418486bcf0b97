"""A family's heads, and what its files hold: Hugging Face's names of tensors, tied copies, buffers."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from bertzoo.layers import ClassificationHead, MaskedLMHead
from bertzoo.layers.heads import weighted_mean_over_tokens
from bertzoo.models.config import EncoderConfig
from bertzoo.types import Tensor

# Pairs (Keras weight, Hugging Face tensor). `{i}` stands for a layer's number; `{a,b,c}` lists tensors that are one
# weight here.
Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class HeadSpec:
    """One head of a family: the suffix of Hugging Face's class for it, and the names of its tensors."""

    hf_class: str
    names: Names


def dense_names(keras_name: str, hf_name: str) -> Names:
    """The weights of a dense layer."""
    return (f"{keras_name}/kernel", f"{hf_name}.weight"), (f"{keras_name}/bias", f"{hf_name}.bias")


def norm_names(keras_name: str, hf_name: str) -> Names:
    """The weights of a normalisation."""
    return (f"{keras_name}/gamma", f"{hf_name}.weight"), (f"{keras_name}/beta", f"{hf_name}.bias")


def one_dense_head(hf_class_suffix: str, head_name: str, hf_logits_name: str = "classifier") -> HeadSpec:
    """A head of one dense layer."""
    return HeadSpec(hf_class_suffix, dense_names(f"{head_name}/logits", hf_logits_name))


def two_dense_head(
    hf_class_suffix: str, head_name: str, hf_dense_name: str, hf_logits_name: str = "classifier"
) -> HeadSpec:
    """A head of two dense layers."""
    return HeadSpec(
        hf_class_suffix,
        (*dense_names(f"{head_name}/dense", hf_dense_name), *dense_names(f"{head_name}/logits", hf_logits_name)),
    )


def masked_lm_head(hf_dense_name: str, hf_norm_name: str, hf_bias_name: str) -> HeadSpec:
    """A masked-LM head, whose decoder is the token table."""
    names = (
        *dense_names("masked_lm/dense", hf_dense_name),
        *norm_names("masked_lm/norm", hf_norm_name),
        ("masked_lm/bias", hf_bias_name),
    )
    return HeadSpec("ForMaskedLM", names)


# Heads of one dense layer, which all families name alike.
PLAIN_HEADS = {
    "token_classifier": one_dense_head("ForTokenClassification", "token_classifier"),
    "qa": one_dense_head("ForQuestionAnswering", "qa", "qa_outputs"),
    "multiple_choice": one_dense_head("ForMultipleChoice", "multiple_choice"),
}
FIXED_LABELS = {"qa": 2, "multiple_choice": 1, "pair": 2, "rtd": 1}


class FamilyHeads:
    """The heads and the files of a family. The methods here are BERT's; a family overrides what differs."""

    heads: Mapping[str, HeadSpec]
    # The heads that read the pooler; other sequence-level heads read `pool_for_head`.
    pooled_heads: tuple[str, ...] = ("classifier", "multiple_choice", "pair")
    # Whether `pool_for_head` reads the first token alone, so that the last block need not compute the others.
    heads_read_first_token: bool = True
    # The masked-LM decoder's kernel, which files have to themselves where it is not the token table.
    decoder: str

    def build_head(
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
        options = {"initializer_range": config.initializer_range, **self.head_layer_options(config, name), **options}
        if name != "masked_lm":
            layer_class = options.pop("layer_class", ClassificationHead)
            return layer_class(num_labels or FIXED_LABELS[name], name=name, **options)
        names = dict(self.head_tensor_names(config, "masked_lm"))
        tied = "masked_lm/decoder" not in names
        if tied and not has_tied_decoder(config):
            raise ValueError("config.json has tie_word_embeddings = false; this head's decoder is the token table.")
        options = {"layer_norm_eps": config.layer_norm_eps, "tied": tied, **options}
        return options.pop("layer_class", MaskedLMHead)(config.vocab_size, config.embedding_size, **options)

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        """The arguments of a head's layer, and as `layer_class` its class."""
        if head_name == "masked_lm":
            return {"activation": config.hidden_act}
        if head_name == "rtd":
            return {"dropout_rate": 0.0, "dense_activation": config.hidden_act}
        return {"dropout_rate": 0.0 if head_name in ("qa", "pair") else self.head_dropout(config)}

    def head_dropout(self, config: EncoderConfig) -> float:
        """Dropout before a task's last layer."""
        return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout

    def head_reads_padding(self, config: Any, head_name: str) -> bool:
        """Whether a head reads the output at padding, so that rows can't be packed."""
        return self.head_pooling(config, head_name) in ("last place", "mean of places")

    def pool_for_head(
        self, config: Any, sequence: Tensor, padding_mask: Tensor | None = None, head_name: str = "classifier"
    ) -> Tensor:
        """What a sequence-level head reads instead of the pooler: (batch, length, hidden) -> (batch, hidden)."""
        kind = self.head_pooling(config, head_name)
        if kind == "first":
            return sequence[:, 0]
        if kind == "last place":
            return sequence[:, -1]
        wide = ops.cast(sequence, "float32")  # in half precision a sum over the row could overflow
        counts_padding = padding_mask is None or kind == "mean of places"
        weights = ops.ones_like(wide[:, :, 0]) if counts_padding else ops.cast(padding_mask, "float32")
        return ops.cast(weighted_mean_over_tokens(wide, weights), sequence.dtype)

    def head_pooling(self, config: Any, head_name: str) -> str:
        """Which tokens `pool_for_head` reads: the "first", the "mean" of the real ones, or, padding included, the "last
        place" of the row or the "mean of places"."""
        return "first"

    def head_tensor_names(self, config: Any, head_name: str) -> Names:
        """The names of a head's tensors; a masked-LM decoder that is not the token table has a bias of its own too."""
        names = self.heads[head_name].names
        if head_name != "masked_lm" or has_tied_decoder(config):
            return names
        bias = ("masked_lm/bias", self._decoder_bias)
        return (*(pair for pair in names if pair[0] != bias[0]), ("masked_lm/decoder", self.decoder), bias)

    @property
    def _decoder_bias(self) -> str:
        return self.decoder.removesuffix("weight") + "bias"

    @property
    def tensor_aliases(self) -> dict[str, str]:
        """The decoder's copy of the masked-LM bias, which files may hold in place of the bias -> the bias."""
        bias = dict(self.heads["masked_lm"].names)["masked_lm/bias"]
        return {self._decoder_bias: bias} if bias != self._decoder_bias else {}

    def placeholder_counts(self, config: Any) -> dict[str, int]:
        """The range of each index in `names`."""
        return {"i": config.num_hidden_layers}

    def complete_config_from_tensors(self, config: Any, tensor_names: Container[str]) -> EncoderConfig:
        """The configuration of a checkpoint, completed with what only its tensors show.

        `tensor_names` are the names as in the tables, without prefix.
        """
        return config

    def is_ignored_tensor(self, tensor_name: str) -> bool:
        """Whether a tensor of the file is a buffer, or a copy of one that is tied to another."""
        buffers = ("embeddings.position_ids", "embeddings.token_type_ids")
        return tensor_name in buffers or tensor_name == self.decoder or tensor_name in self.tensor_aliases


def has_tied_decoder(config: EncoderConfig) -> bool:
    """Whether the masked-LM decoder is the token table."""
    return config.extra.get("tie_word_embeddings") is not False
