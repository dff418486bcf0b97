"""ModernBERT (Warner et al. 2024): rotary positions, mostly local attention, pre-norm, gated layers, no biases."""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import keras

from bertzoo.checkpoints.json_files import NULL, OBJECT, check_values, choice_rule, list_rule
from bertzoo.layers.modernbert import NormedHead, PreNormBlock
from bertzoo.layers.rotary import RotaryAttention
from bertzoo.models.config import Activation, Dropout, EncoderConfig, Flag, NonNegative, NoSegments, PaddingId, Size
from bertzoo.models.family import Family
from bertzoo.models.heads import PLAIN_HEADS, HeadSpec, dense_names, norm_names

GLOBAL, LOCAL = "full_attention", "sliding_attention"
LAYER = "layers.{i}."
HEADS = {"classifier": "ForSequenceClassification", "masked_lm": "ForMaskedLM"}
HEADS |= {name: head.hf_class for name, head in PLAIN_HEADS.items()}


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
    embedding_dropout: Dropout = 0.0
    classifier_dropout: float | None = 0.0
    max_position_embeddings: int = 8192
    type_vocab_size: NoSegments = 0
    layer_norm_eps: float = 1e-5
    pad_token_id: PaddingId = 50283
    local_attention: Size = 128  # tokens on both sides together
    # Every third is global, from the first, where None.
    layer_types: Annotated[tuple[str, ...] | None, list_rule(choice_rule(GLOBAL, LOCAL)) | NULL] = None
    global_rope_theta: NonNegative = 160000.0
    local_rope_theta: NonNegative = 10000.0
    attention_bias: Flag = False
    mlp_bias: Flag = False
    norm_bias: Flag = False
    classifier_bias: Flag = False
    classifier_activation: Activation = "gelu"
    classifier_pooling: Annotated[str, choice_rule("cls", "mean")] = "cls"

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
        every = self.extra.get("global_attn_every_n_layers", 3)
        types = self.layer_types
        if types is None:
            types = tuple(LOCAL if i % every else GLOBAL for i in range(self.num_hidden_layers))
        if len(types) != self.num_hidden_layers:
            raise ValueError(f"layer_types must be {GLOBAL} or {LOCAL} for each layer. Received: {types!r}.")
        object.__setattr__(self, "layer_types", tuple(types))

    def to_hf(self) -> dict[str, Any]:
        content = {**super().to_hf(), "layer_types": list(self.layer_types or ())}
        thetas, old = {GLOBAL: self.global_rope_theta, LOCAL: self.local_rope_theta}, content.get("rope_parameters")
        content["rope_parameters"] = {
            kind: {"rope_type": "default", **((old or {}).get(kind) or {}), "rope_theta": theta}
            for kind, theta in thetas.items()
        }
        return content

    @classmethod
    def _read(cls, content):
        config = super()._read(content)
        parameters, scaling, thetas = content.get("rope_parameters") or {}, content.get("rope_scaling"), {}
        check_values(parameters, dict.fromkeys((GLOBAL, LOCAL), OBJECT | NULL), "rope_parameters.")
        for name, kind in (("global_rope_theta", GLOBAL), ("local_rope_theta", LOCAL)):
            rope = parameters.get(kind) or {}
            if rope.get("rope_type", "default") != "default" or scaling:
                raise ValueError(
                    f"config.json scales rotary positions ({scaling or rope}); bertzoo has the default alone."
                )
            thetas[name] = rope.get("rope_theta", content.get(name, getattr(cls, name)))
        return config.replace(**thetas)

    @property
    def output_initializer_range(self) -> float:
        """Standard deviation of the initial kernels that write into the residual stream."""
        return self.initializer_range / math.sqrt(2 * self.num_hidden_layers)


class ModernBert(Family):
    model_type = "modernbert"
    hf_name = "ModernBert"
    prefix = "model."
    config_class = ModernBertConfig
    names = (
        ("embeddings/token", "embeddings.tok_embeddings.weight"),
        *norm_names("embeddings/norm", "embeddings.norm"),
        *norm_names("layer_{i}/attention_norm", LAYER + "attn_norm"),
        *dense_names("layer_{i}/attention/qkv", LAYER + "attn.Wqkv"),
        *dense_names("layer_{i}/attention/output", LAYER + "attn.Wo"),
        *norm_names("layer_{i}/intermediate_norm", LAYER + "mlp_norm"),
        *dense_names("layer_{i}/intermediate", LAYER + "mlp.Wi"),
        *dense_names("layer_{i}/output", LAYER + "mlp.Wo"),
        *norm_names("layer_{i}/final_norm", "final_norm"),  # of the last layer
    )
    heads = {
        name: HeadSpec(
            hf_class,
            (
                *dense_names(f"{name}/dense", "head.dense"),
                *norm_names(f"{name}/norm", "head.norm"),
                *dense_names(f"{name}/logits", "classifier"),
                (f"{name}/bias", "decoder.bias"),
            ),
        )
        for name, hf_class in HEADS.items()
    }
    has_pooler, pooled_heads = False, ()
    heads_read_first_token = False
    decoder = "decoder.weight"

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        config = config.replace(hidden_dropout_prob=config.embedding_dropout)
        return super().build_embeddings(config, max_positions=0, norm_bias=config.norm_bias, **options)

    def build_block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        local = config.layer_types[index] == LOCAL
        attention = RotaryAttention(
            config.hidden_size,
            config.num_attention_heads,
            config.attention_probs_dropout_prob,
            config.initializer_range,
            theta=config.local_rope_theta if local else config.global_rope_theta,
            window=config.local_attention // 2 if local else None,
            use_bias=config.attention_bias,
            output_initializer_range=config.output_initializer_range,
            **options,
        )
        return PreNormBlock(
            attention,
            config.hidden_size,
            config.intermediate_size,
            config.hidden_act,
            config.hidden_dropout_prob,
            config.attention_probs_dropout_prob,
            config.layer_norm_eps,
            config.initializer_range,
            config.output_initializer_range,
            config.mlp_bias,
            config.norm_bias,
            is_first=index == 0,
            is_last=index == config.num_hidden_layers - 1,
            name=f"layer_{index}",
            **options,
        )

    def head_pooling(self, config: Any, head_name: str) -> str:
        return "first" if config.classifier_pooling == "cls" else "mean"

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        """As the family's; raises ValueError where the masked-LM decoder has no bias."""
        biases = {"use_bias": config.classifier_bias, "norm_bias": config.norm_bias}
        if head_name == "masked_lm":
            if config.extra.get("decoder_bias", True) is not True:
                raise ValueError("config.json has decoder_bias = false; bertzoo's masked-LM decoder has a bias.")
            return {
                **biases,
                "activation": config.classifier_activation,
                "initializer_range": config.output_initializer_range,
            }
        return {
            **biases,
            "layer_class": NormedHead,
            "dropout_rate": self.head_dropout(config),
            "initializer_range": config.hidden_size**-0.5,
            "dense_activation": config.classifier_activation,
            "layer_norm_eps": config.layer_norm_eps,
            "dense_initializer_range": config.output_initializer_range,
        }
