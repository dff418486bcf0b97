"""The configuration of DeBERTa's versions (He et al. 2021)."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bertzoo.checkpoints.json_files import FLAG, NULL, TEXT, integer, list_of
from bertzoo.models.config import ACTIVATION, DROPOUT, EncoderConfig

TERMS = ("c2p", "p2c")


@dataclass(frozen=True)
class DebertaConfig(EncoderConfig):
    """DeBERTa-base.

    `legacy` is Hugging Face's: True means a masked-LM head as BERT's, False the head of the original files. Only with
    the latter there can be the `enhanced_mask_decoder`, which transformers does not have.

    Raises:
        ValueError: A term of attention is unknown, or values do not go together.
    """

    model_type: str = "deberta"
    vocab_size: int = 50265
    embedding_size: int | None = None  # as hidden_size
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-7
    relative_attention: bool = True
    max_relative_positions: int = -1  # as max_position_embeddings
    pos_att_type: str | tuple[str, ...] | None = TERMS
    position_biased_input: bool = False
    pooler_hidden_act: str = "gelu"
    pooler_dropout: float = 0.0
    legacy: bool = True
    enhanced_mask_decoder: bool = False

    rules = MappingProxyType(
        {
            **EncoderConfig.rules,
            "embedding_size": integer(1) | NULL,
            "max_relative_positions": integer(-1),
            "pooler_dropout": DROPOUT,
            "pooler_hidden_act": ACTIVATION,
            "pos_att_type": TEXT | list_of(TEXT) | NULL,
            "type_vocab_size": integer(0),
            **dict.fromkeys(("relative_attention", "position_biased_input", "legacy", "enhanced_mask_decoder"), FLAG),
        }
    )
    hf_names = MappingProxyType({"classifier_dropout": "cls_dropout", "enhanced_mask_decoder": None})
    # Hugging Face's defaults for the last three differ from all released models.
    required = (*EncoderConfig.required, "relative_attention", "pos_att_type", "position_biased_input")

    def __post_init__(self):
        super().__post_init__()
        if self.embedding_size is None:
            object.__setattr__(self, "embedding_size", self.hidden_size)
        if isinstance(self.pos_att_type, list):
            object.__setattr__(self, "pos_att_type", tuple(self.pos_att_type))
        if not set(self.terms) <= set(TERMS) or len(set(self.terms)) < len(self.terms):
            raise ValueError(
                f"pos_att_type may name {' and '.join(TERMS)}, once each. Received: {self.pos_att_type!r}."
            )
        only = {"attention_head_size": self.head_size, "pooler_hidden_size": self.hidden_size, "talking_head": False}
        for key, value in {**only, "conv_groups": 1}.items():
            if self.extra.get(key, value) != value:
                raise ValueError(f"config.json has {key} = {self.extra[key]!r}; bertzoo computes only {value!r}.")
        if self.enhanced_mask_decoder and (self.legacy or not self.may_decode):
            raise ValueError(
                "enhanced_mask_decoder needs legacy = False, position_biased_input = False and an embedding_size that "
                "is the hidden_size."
            )

    @property
    def may_decode(self) -> bool:
        """Whether absolute positions are left for the masked-LM head, and fit the encoder's output."""
        return not self.position_biased_input and self.embedding_size == self.hidden_size

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the attention scores besides content to content."""
        terms = self.pos_att_type or ()
        return tuple(term.strip() for term in terms.lower().split("|")) if isinstance(terms, str) else terms

    @property
    def max_distance(self) -> int:
        """Distances between tokens from here on are all alike."""
        return self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings

    def to_hf(self) -> dict[str, Any]:
        content = super().to_hf()
        if self.enhanced_mask_decoder:
            content["bertzoo"] = {**(content.get("bertzoo") or {}), "enhanced_mask_decoder": True}
        return content

    @classmethod
    def _read(cls, content):
        config = super()._read(content)
        own = content.get("bertzoo") or {}
        return config.with_(enhanced_mask_decoder=own.get("enhanced_mask_decoder", False))
