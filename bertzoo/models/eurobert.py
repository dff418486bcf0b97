"""EuroBERT (Boizard et al. 2025): the blocks of Llama, whose tokens attend to both sides."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Self

import keras

from bertzoo.checkpoints.json_files import NULL, choice_rule, integer_rule
from bertzoo.layers.eurobert import LatePoolingHead, PlainEmbeddings
from bertzoo.layers.modernbert import PreNormBlock
from bertzoo.models.config import Flag, NoSegments, PaddingId
from bertzoo.models.family import Family
from bertzoo.models.heads import PLAIN_HEADS, HeadSpec, dense_names, norm_names, two_dense_head
from bertzoo.models.rotary import RotaryConfig, build_rotary_attention

LAYER = "layers.{i}."


@dataclass(frozen=True)
class EuroBertConfig(RotaryConfig):
    """EuroBERT-210m. `classifier_pooling` is "bos", "mean", or "late": the mean of the classifier's dense layer.

    Raises:
        ValueError: The heads of queries are no multiple of those of keys and values.
    """

    model_type: str = "eurobert"
    vocab_size: int = 128256
    num_key_value_heads: Annotated[int, integer_rule(1) | NULL] = None  # type: ignore[assignment]  # as for queries
    hidden_act: str = "silu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout: float | None = 0.0
    max_position_embeddings: int = 8192
    type_vocab_size: NoSegments = 0
    layer_norm_eps: float = 1e-5
    pad_token_id: PaddingId = 128001
    attention_bias: Flag = False
    mlp_bias: Flag = False
    classifier_pooling: Annotated[str, choice_rule("bos", "mean", "late")] = "late"

    hf_names = MappingProxyType(
        {
            **RotaryConfig.hf_names,
            "hidden_dropout_prob": None,
            "attention_probs_dropout_prob": "attention_dropout",
            "classifier_dropout": None,
            "type_vocab_size": None,
            "layer_norm_eps": "rms_norm_eps",
        }
    )

    def __post_init__(self):
        super().__post_init__()
        if self.num_key_value_heads is None:
            object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                "num_attention_heads must be a multiple of num_key_value_heads. Received: "
                f"{self.num_attention_heads} and {self.num_key_value_heads}."
            )
        object.__setattr__(self, "extra", {"tie_word_embeddings": False, **self.extra})

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> Self:
        if "clf_pooling" in content:  # of the authors' own code
            content = {"classifier_pooling": content["clf_pooling"], **content}
            content = {key: value for key, value in content.items() if key not in ("clf_pooling", "auto_map")}
        return super()._read(content)


class EuroBert(Family):
    model_type = "eurobert"
    hf_name = "EuroBert"
    prefix = "model."
    config_class = EuroBertConfig
    names = (
        ("embeddings/token", "embed_tokens.weight"),
        *norm_names("layer_{i}/attention_norm", LAYER + "input_layernorm"),
        *dense_names("layer_{i}/attention/qkv", LAYER + "self_attn.{q_proj*g,k_proj,v_proj}"),
        *dense_names("layer_{i}/attention/output", LAYER + "self_attn.o_proj"),
        *norm_names("layer_{i}/intermediate_norm", LAYER + "post_attention_layernorm"),
        *dense_names("layer_{i}/intermediate", LAYER + "mlp.{gate_proj,up_proj}"),
        *dense_names("layer_{i}/output", LAYER + "mlp.down_proj"),
        *norm_names("layer_{i}/final_norm", "norm"),  # of the last layer
    )
    heads = {
        "masked_lm": HeadSpec("ForMaskedLM", (("masked_lm/bias", "lm_head.bias"),)),
        "classifier": two_dense_head("ForSequenceClassification", "classifier", "dense"),
        "token_classifier": PLAIN_HEADS["token_classifier"],
    }
    has_pooler, pooled_heads = False, ()
    heads_read_first_token = False
    decoder = "lm_head.weight"

    def placeholder_counts(self, config: Any) -> dict[str, int]:
        return {**super().placeholder_counts(config), "g": config.num_attention_heads // config.num_key_value_heads}

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        return super().build_embeddings(config, layer_class=PlainEmbeddings, max_positions=0, **options)

    def build_block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        grouped = {"num_key_value_heads": config.num_key_value_heads, "use_bias": config.attention_bias}
        attention = build_rotary_attention(config, **grouped, **options)
        return PreNormBlock(
            attention,
            config.hidden_size,
            config.intermediate_size,
            config.hidden_act,
            config.hidden_dropout_prob,
            config.attention_probs_dropout_prob,
            config.layer_norm_eps,
            config.initializer_range,
            config.initializer_range,
            config.mlp_bias,
            rms_norm=True,
            is_last=index == config.num_hidden_layers - 1,
            name=f"layer_{index}",
            **options,
        )

    def head_pooling(self, config: Any, head_name: str) -> str:
        return "first" if config.classifier_pooling == "bos" else "mean"

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        if head_name == "masked_lm":
            return {"transforms": False, "decoder_bias": config.mlp_bias}
        if head_name == "token_classifier":
            return {"dropout_rate": 0.0}
        late = {"layer_class": LatePoolingHead} if config.classifier_pooling == "late" else {}
        return {"dropout_rate": 0.0, "dense_activation": "gelu", **late}
