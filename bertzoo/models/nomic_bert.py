"""Nomic BERT (Nussbaum et al. 2024): BERT with rotary positions and gated feed-forward parts, without biases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import keras

from bertzoo.checkpoints.json_files import NULL, check_values, integer_rule
from bertzoo.layers.gated import GatedBlock
from bertzoo.models.bert import Bert
from bertzoo.models.family import Family
from bertzoo.models.heads import PLAIN_HEADS, dense_names, masked_lm_head, norm_names
from bertzoo.models.rotary import RotaryConfig, build_rotary_attention, pop_supported

# Of configurations for Nomic's own code: the key -> transformers'.
OLD_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
}
OLD_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu"}
# The keys with the only values that are supported.
OLD_VALUES = {
    "causal": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "moe_every_n_layers": (None, 0),
    "num_experts": (None, 0, 1),
    "parallel_block": (False,),
    "prenorm": (False,),
    "qkv_proj_bias": (False,),
    "rotary_emb_fraction": (1.0,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (None,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "use_rms_norm": (None, False),
}
OLD_INERT = """
    auto_map dense_seq_output embd_pdrop expert_choice_router fused_bias_fc fused_dropout_add_ln
    parallel_block_tied_norm reorder_and_upcast_attn summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj use_flash_attn use_xentropy
""".split()  # noqa: SIM905


@dataclass(frozen=True)
class NomicBertConfig(RotaryConfig):
    """Nomic BERT-base. Configurations for Nomic's own code, with `n_embd`, are read too."""

    model_type: str = "nomic_bert"
    vocab_size: int = 30528
    hidden_act: str = "silu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 2048
    rope_theta: float = 1000.0

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> Self:
        return super()._read(_translate(content) if "n_embd" in content else content)


def _translate(content: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a configuration for Nomic's own code -> transformers'.

    Raises:
        ValueError: A value is not supported.
    """
    new = dict(content)
    pop_supported(new, OLD_VALUES)
    act = new.pop("activation_function", "swiglu")
    if act not in OLD_ACTIVATIONS:
        raise ValueError(f"config.json has activation_function = {act!r}; supported: {', '.join(OLD_ACTIVATIONS)}.")
    sizes = dict.fromkeys(("n_embd", "vocab_size", "pad_vocab_size_multiple"), integer_rule(1))
    optional = dict.fromkeys(("n_inner", "max_trained_positions"), integer_rule(1) | NULL)
    check_values(new, {**sizes, **optional})
    multiple = new.pop("pad_vocab_size_multiple", 1)
    new["vocab_size"] = -(-new.get("vocab_size", NomicBertConfig.vocab_size) // multiple) * multiple
    new["n_inner"] = new.get("n_inner") or 4 * new["n_embd"]
    trained, scaling = new.pop("max_trained_positions", None), new.pop("rotary_scaling_factor", None)
    if scaling and trained:  # from there on wavelengths depend on the length of the batch
        new["n_positions"] = trained
    new |= {"hidden_act": OLD_ACTIVATIONS[act], **{name: new.pop(key) for key, name in OLD_NAMES.items() if key in new}}
    return {key: value for key, value in new.items() if key not in OLD_INERT}


def layer_names(layer: str, **names: str) -> tuple[tuple[str, str], ...]:
    """The names of a block's tensors.

    Args:
        layer: Their prefix.
        names: Those of `qkv`, `output`, `first_norm`, `intermediate`, `down` and `second_norm`.
    """
    dense = {"attention/qkv": "qkv", "attention/output": "output", "intermediate": "intermediate", "output": "down"}
    norms = {"attention_norm": "first_norm", "output_norm": "second_norm"}
    modules = [*((dense_names, *pair) for pair in dense.items()), *((norm_names, *pair) for pair in norms.items())]
    return sum((make(f"layer_{{i}}/{keras_name}", layer + names[hf_name]) for make, keras_name, hf_name in modules), ())


# The names of transformers' modules.
MODULES = layer_names(
    "layers.{i}.",
    qkv="self_attn.{q_proj,k_proj,v_proj}",
    output="self_attn.o_proj",
    first_norm="post_attention_layernorm",
    intermediate="mlp.{up_proj,gate_proj}",
    down="mlp.down_proj",
    second_norm="post_mlp_layernorm",
)


class NomicBert(Family):
    model_type = "nomic_bert"
    hf_name = "NomicBert"
    prefix = "nomic_bert."
    former_prefixes = ("bert.",)
    config_class: type[RotaryConfig] = NomicBertConfig
    names = (
        ("embeddings/token", "embeddings.word_embeddings.weight"),
        ("embeddings/segment", "embeddings.token_type_embeddings.weight"),
        *norm_names("embeddings/norm", "emb_ln"),
        *layer_names(
            "encoder.layers.{i}.",
            qkv="attn.Wqkv",
            output="attn.out_proj",
            first_norm="norm1",
            intermediate="mlp.{fc11,fc12}",
            down="mlp.fc2",
            second_norm="norm2",
        ),
        *dense_names("pooler/dense", "pooler.dense"),
    )
    alternative_names = (*norm_names("embeddings/norm", "embeddings.LayerNorm"), *MODULES)
    heads = {
        "masked_lm": masked_lm_head(
            "cls.predictions.transform.dense", "cls.predictions.transform.layer_norm", "cls.predictions.bias"
        ),
        "classifier": Bert.heads["classifier"],
        "token_classifier": PLAIN_HEADS["token_classifier"],
    }
    has_pooler_alone = False
    pooled_heads = ("classifier",)
    decoder = Bert.decoder
    has_biases = False

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        return super().build_embeddings(config, max_positions=0, **options)

    def build_block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        attention = build_rotary_attention(config, use_bias=self.has_biases, dtype=options.get("dtype"))
        options = {"layer_class": GatedBlock, "output_bias": self.has_biases, **options}
        return super().build_block(config, index, attention=attention, **options)
