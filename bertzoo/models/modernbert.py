"""ModernBERT (Warner et al. 2024): rotary positions, mostly local attention, pre-norm, gated layers, no biases."""

import math
from typing import Any

import keras
from keras import ops

from bertzoo.layers.pooling import weighted_mean
from bertzoo.layers.prenorm import BiaslessMaskedLMHead, NormedHead, PreNormBlock
from bertzoo.layers.rotary import RotaryAttention
from bertzoo.models.family import PLAIN_HEADS, Family, Head, dense, norm
from bertzoo.models.modernbert_config import LOCAL, ModernBertConfig
from bertzoo.types import Tensor

LAYER = "layers.{i}."


class ModernBert(Family):
    model_type = "modernbert"
    hf_name = "ModernBert"
    prefix = "model."
    config_class = ModernBertConfig
    names = tuple(
        (f"{ours}/{mine}", f"{theirs}.{yours}")
        for ours, theirs, kinds in (
            ("embeddings/norm", "embeddings.norm", ("gamma", "beta")),
            ("layer_{i}/attention_norm", LAYER + "attn_norm", ("gamma", "beta")),
            ("layer_{i}/attention/qkv", LAYER + "attn.Wqkv", ("kernel", "bias")),
            ("layer_{i}/attention/output", LAYER + "attn.Wo", ("kernel", "bias")),
            ("layer_{i}/intermediate_norm", LAYER + "mlp_norm", ("gamma", "beta")),
            ("layer_{i}/intermediate", LAYER + "mlp.Wi", ("kernel", "bias")),
            ("layer_{i}/output", LAYER + "mlp.Wo", ("kernel", "bias")),
            ("layer_{i}/final_norm", "final_norm", ("gamma", "beta")),  # of the last layer
        )
        for mine, yours in zip(kinds, ("weight", "bias"))
    ) + (("embeddings/token", "embeddings.tok_embeddings.weight"),)
    heads = {
        name: Head(
            plain.hf_class,
            (
                *dense(f"{name}/dense", "head.dense"),
                *norm(f"{name}/norm", "head.norm"),
                *dense(f"{name}/logits", "classifier"),
                (f"{name}/bias", "decoder.bias"),
            ),
        )
        for name, plain in {
            **PLAIN_HEADS,
            "classifier": Head("ForSequenceClassification", ()),
            "masked_lm": Head("ForMaskedLM", ()),
        }.items()
    }
    has_pooler = classifier_uses_pooler = multiple_choice_uses_pooler = False
    heads_read_first_token = False
    decoder = "decoder.weight"
    inert_tensors = ("decoder.weight",)

    def embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        config = config.with_(hidden_dropout_prob=config.embedding_dropout)
        return super().embeddings(config, max_positions=0, norm_bias=config.norm_bias, **options)

    def block(self, config: Any, index: int, dtype: Any = None) -> keras.layers.Layer:
        local = config.layer_types[index] == LOCAL
        attention = RotaryAttention(
            config.hidden_size,
            config.num_attention_heads,
            config.attention_probs_dropout_prob,
            config.initializer_range,
            theta=config.local_rope_theta if local else config.global_rope_theta,
            window=config.local_attention // 2 if local else None,
            use_bias=config.attention_bias,
            output_range=output_range(config),
            dtype=dtype,
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
            output_range(config),
            config.mlp_bias,
            config.norm_bias,
            first=index == 0,
            last=index == config.num_hidden_layers - 1,
            name=f"layer_{index}",
            dtype=dtype,
        )

    def head_vectors(self, config: Any, sequence: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if config.classifier_pooling == "cls":
            return super().head_vectors(config, sequence, padding_mask)
        wide = ops.cast(sequence, "float32")  # in half precision a sum over the row could overflow
        weights = ops.ones_like(wide[:, :, 0]) if padding_mask is None else ops.cast(padding_mask, "float32")
        return ops.cast(weighted_mean(wide, weights), sequence.dtype)

    def head_options(self, config: Any, name: str) -> dict[str, Any]:
        """As the family's; raises ValueError where the masked-LM decoder has no bias."""
        biases = {"use_bias": config.classifier_bias, "norm_bias": config.norm_bias}
        if name == "masked_lm":
            if config.extra.get("decoder_bias", True) is not True:
                raise ValueError("config.json has decoder_bias = false; bertzoo's masked-LM decoder has a bias.")
            return {
                **biases,
                "layer": BiaslessMaskedLMHead,
                "activation": config.classifier_activation,
                "initializer_range": output_range(config),
            }
        return {
            **biases,
            "layer": NormedHead,
            "dropout_rate": self.head_dropout(config),
            "initializer_range": config.hidden_size**-0.5,
            "dense_activation": config.classifier_activation,
            "layer_norm_eps": config.layer_norm_eps,
            "dense_range": output_range(config),
        }


def output_range(config: ModernBertConfig) -> float:
    """Standard deviation of the initial kernels that write into the residual stream."""
    return config.initializer_range / math.sqrt(2 * config.num_hidden_layers)
