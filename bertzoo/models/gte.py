"""GTE (Zhang et al. 2024, "mGTE"): Nomic BERT with biases, for texts of up to 8,192 tokens in many languages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import keras

from bertzoo.checkpoints.json_files import OBJECT, check_values, integer_rule, number_rule
from bertzoo.models.heads import masked_lm_head, norm_names
from bertzoo.models.nomic_bert import MODULES, NomicBert, layer_names
from bertzoo.models.rotary import RotaryConfig, pop_supported

# Of configurations for Alibaba's own code, whose model_type is "new": the keys with the only values that are supported.
OLD_VALUES = {
    "layer_norm_type": ("layer_norm",),
    "logn_attention_clip1": (False,),
    "logn_attention_scale": (False,),
    "position_embedding_type": ("rope",),
}
OLD_INERT = ("auto_map", "pack_qkv", "unpad_inputs", "use_memory_efficient_attention")


@dataclass(frozen=True)
class GteConfig(RotaryConfig):
    """GTE-multilingual-base. Configurations for Alibaba's own code are read too."""

    model_type: str = "gte"
    vocab_size: int = 250048
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 8192
    type_vocab_size: Annotated[int, integer_rule(0)] = 1
    pad_token_id: int = 1
    rope_theta: float = 160000.0

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> Self:
        own_code = content.get("model_type") == "new" or "layer_norm_type" in content
        return super()._read(_translate(content) if own_code else content)


def _translate(content: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a configuration for Alibaba's own code -> transformers'.

    Raises:
        ValueError: A value is not supported.
    """
    new = {key: value for key, value in content.items() if key not in OLD_INERT}
    pop_supported(new, OLD_VALUES)
    rope = new.get("rope_scaling") or {}
    check_values({"rope_scaling": rope}, {"rope_scaling": OBJECT})
    if rope.get("type") == "ntk":
        check_values(rope, {"factor": number_rule(1), "mixed_b": number_rule(1, 1)}, "rope_scaling.")
        sizes = ("hidden_size", "num_attention_heads")
        check_values(new, {**dict.fromkeys(sizes, integer_rule(1)), "rope_theta": number_rule(0)})
        factor, head_size = rope.get("factor", 1.0), new.get("hidden_size", 768) / new.get("num_attention_heads", 12)
        # Wavelengths (theta · factor)^(2i / size) · factor^(2 / size), which is another theta and linear scaling.
        linear = {"rope_type": "linear", "factor": factor ** (2 / head_size)}
        new["rope_parameters"] = {**linear, "rope_theta": factor * new.pop("rope_theta", 10000.0)}
        del new["rope_scaling"]
    return {**new, "model_type": "gte"}


class Gte(NomicBert):
    model_type = "gte"
    former_model_types = ("new",)
    hf_name = "Gte"
    prefix = "gte."
    former_prefixes = ("new.",)
    config_class = GteConfig
    names = (
        *(pair for pair in NomicBert.names if not pair[0].startswith(("layer_", "embeddings/norm"))),
        *norm_names("embeddings/norm", "embeddings.LayerNorm"),
        *layer_names(
            "encoder.layer.{i}.",
            qkv="attention.qkv_proj",
            output="attention.o_proj",
            first_norm="attn_ln",
            intermediate="mlp.up_gate_proj",
            down="mlp.down_proj",
            second_norm="mlp_ln",
        ),
    )
    alternative_names = (*MODULES, *norm_names("masked_lm/norm", "lm_head.layer_norm"))
    heads = {**NomicBert.heads, "masked_lm": masked_lm_head("lm_head.dense", "lm_head.norm", "lm_head.decoder.bias")}
    decoder = "lm_head.decoder.weight"
    has_biases = True

    def build_block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        return super().build_block(config, index, gated_dropout=config.hidden_dropout_prob, **options)

    def head_layer_options(self, config: Any, head_name: str) -> dict[str, Any]:
        options = super().head_layer_options(config, head_name)
        return {**options, "activation": "gelu"} if head_name == "masked_lm" else options
