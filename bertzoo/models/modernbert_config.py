"""The configuration of ModernBERT (Warner et al. 2024)."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bertzoo.checkpoints.json_files import FLAG, NULL, OBJECT, check, choice, integer, list_of, number
from bertzoo.models.config import ACTIVATION, DROPOUT, FILE_RULES, EncoderConfig

GLOBAL, LOCAL = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class ModernBertConfig(EncoderConfig):
    """ModernBERT-base. `hidden_dropout_prob` is inside the feed-forward parts.

    Raises:
        ValueError: A kind of attention, activation, position or pooling is not supported.
    """

    model_type: str = "modernbert"
    vocab_size: int = 50368
    num_hidden_layers: int = 22
    intermediate_size: int = 1152
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    embedding_dropout: float = 0.0
    classifier_dropout: float | None = 0.0
    max_position_embeddings: int = 8192
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 50283
    local_attention: int = 128  # tokens on both sides together
    layer_types: tuple[str, ...] | None = None  # every third is global, from the first
    global_rope_theta: float = 160000.0
    local_rope_theta: float = 10000.0
    attention_bias: bool = False
    mlp_bias: bool = False
    norm_bias: bool = False
    classifier_bias: bool = False
    classifier_activation: str = "gelu"
    classifier_pooling: str = "cls"

    rules = MappingProxyType(
        {
            **EncoderConfig.rules,
            "classifier_activation": ACTIVATION,
            "classifier_pooling": choice("cls", "mean"),
            "embedding_dropout": DROPOUT,
            "global_rope_theta": number(0),
            "layer_types": list_of(choice(GLOBAL, LOCAL)) | NULL,
            "local_attention": integer(1),
            "local_rope_theta": number(0),
            "type_vocab_size": integer(0, 0),
            **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), FLAG),
        }
    )
    hf_names = MappingProxyType(
        {
            "hidden_act": "hidden_activation",
            "hidden_dropout_prob": "mlp_dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "layer_norm_eps": "norm_eps",
            "type_vocab_size": None,
            "global_rope_theta": None,
            "local_rope_theta": None,
        }
    )

    def __post_init__(self):
        super().__post_init__()
        if self.layer_types is None:
            every = self.extra.get("global_attn_every_n_layers", 3)
            types = tuple(LOCAL if i % every else GLOBAL for i in range(self.num_hidden_layers))
            object.__setattr__(self, "layer_types", types)
        object.__setattr__(self, "layer_types", tuple(self.layer_types))
        if len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(f"layer_types must be {GLOBAL} or {LOCAL} for each layer. Received: {self.layer_types!r}.")

    def to_hf(self) -> dict[str, Any]:
        content = super().to_hf()
        thetas, old = {GLOBAL: self.global_rope_theta, LOCAL: self.local_rope_theta}, content.get("rope_parameters")
        content["rope_parameters"] = {
            kind: {"rope_type": "default", **((old or {}).get(kind) or {}), "rope_theta": theta}
            for kind, theta in thetas.items()
        }
        return content

    @classmethod
    def _read(cls, content):
        check(content, FILE_RULES)
        thetas = {}
        for name, kind in (("global_rope_theta", GLOBAL), ("local_rope_theta", LOCAL)):
            check(content.get("rope_parameters") or {}, {kind: OBJECT | NULL}, "rope_parameters.")
            rope = (content.get("rope_parameters") or {}).get(kind) or {}
            scaling = content.get("rope_scaling")
            if rope.get("rope_type", "default") != "default" or scaling:
                raise ValueError(
                    f"config.json scales rotary positions ({scaling or rope}); bertzoo has the default alone."
                )
            thetas[name] = rope.get("rope_theta", content.get(name, getattr(cls, name)))
        return super()._read(content).with_(**thetas)
