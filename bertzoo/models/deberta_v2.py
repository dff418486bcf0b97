"""DeBERTa v2 (He et al. 2021), v3 and mDeBERTa (He et al. 2023): distances in buckets, shared keys, a convolution."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras

from bertzoo.checkpoints.json_files import FLAG, TEXT, integer
from bertzoo.layers.deberta import ContextHead, ConvolvedBlock
from bertzoo.layers.disentangled import DisentangledAttention
from bertzoo.models.config import ACTIVATION
from bertzoo.models.deberta import SELF, SHARED_NAMES, Deberta
from bertzoo.models.deberta_config import DebertaConfig
from bertzoo.models.family import Head, dense, norm


@dataclass(frozen=True)
class DebertaV2Config(DebertaConfig):
    """DeBERTa v2 with all that is optional in it left out, as where a file says nothing about it.

    Raises:
        ValueError: The convolution has no middle, or there are more buckets than distances.
    """

    model_type: str = "deberta-v2"
    vocab_size: int = 128100
    position_buckets: int = -1
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    conv_kernel_size: int = 0
    conv_act: str = "tanh"

    rules = MappingProxyType(
        {
            **DebertaConfig.rules,
            "position_buckets": integer(-1),
            "share_att_key": FLAG,
            "norm_rel_ebd": TEXT,
            "conv_kernel_size": integer(0),
            "conv_act": ACTIVATION,
        }
    )

    def __post_init__(self):
        super().__post_init__()
        if self.conv_kernel_size > 0 and self.conv_kernel_size % 2 == 0:
            raise ValueError(f"conv_kernel_size must be odd, or 0 for none. Received: {self.conv_kernel_size}.")
        if self.position_buckets > 0 and self.max_distance <= self.position_buckets // 2 + 1:
            raise ValueError(
                f"position_buckets = {self.position_buckets} needs more than {self.position_buckets // 2 + 1} "
                f"distances; max_relative_positions makes them {self.max_distance}."
            )

    @property
    def span(self) -> int:
        """Half the rows of the table of relative positions."""
        return self.position_buckets if self.position_buckets > 0 else self.max_distance


class DebertaV2(Deberta):
    model_type = "deberta-v2"
    hf_name = "DebertaV2"
    config_class = DebertaV2Config
    names = (
        *SHARED_NAMES,
        *norm("relative/norm", "encoder.LayerNorm"),
        *dense("layer_{i}/attention/qkv", SELF + "{query_proj,key_proj,value_proj}"),
        *dense("layer_{i}/attention/position_key", SELF + "pos_key_proj"),
        *dense("layer_{i}/attention/position_query", SELF + "pos_query_proj"),
        *dense("layer_0/convolution", "encoder.conv.conv"),
        *norm("layer_0/convolution_norm", "encoder.conv.LayerNorm"),
    )
    heads = {
        **Deberta.heads,
        "rtd": Head(
            "ForPreTraining",
            (
                *norm("rtd/norm", "mask_predictions.LayerNorm"),
                *dense("rtd/dense", "mask_predictions.dense"),
                *dense("rtd/logits", "mask_predictions.classifier"),
            ),
        ),
    }
    attention = DisentangledAttention

    def position_bias(self, config: Any, **options: Any) -> keras.layers.Layer | None:
        normed = "layer_norm" in [part.strip() for part in config.norm_rel_ebd.lower().split("|")]
        if normed:
            options["layer_norm_eps"] = config.layer_norm_eps
        return super().position_bias(config, span=config.span, **options)

    def block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        if index == 0 and config.conv_kernel_size > 0:
            options.update(
                layer=ConvolvedBlock, kernel_size=config.conv_kernel_size, convolution_activation=config.conv_act
            )
        return super().block(config, index, **options)

    def make_attention(self, config: Any, **options: Any) -> keras.layers.Layer:
        if config.share_att_key:
            options["share_projections"] = True
        return super().make_attention(config, buckets=max(config.position_buckets, 0), **options)

    def head_options(self, config: Any, name: str) -> dict[str, Any]:
        options = super().head_options(config, name)
        return options | {"layer": ContextHead, "layer_norm_eps": config.layer_norm_eps} if name == "rtd" else options
