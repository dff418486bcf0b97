"""The configuration of a family with rotary positions, and where files state them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Self

import keras

from bertzoo.checkpoints.json_files import NULL, OBJECT, TEXT, check_values, number_rule
from bertzoo.layers.rotary import RotaryAttention
from bertzoo.models.config import EncoderConfig, NonNegative

ROPE_RULES = {"rope_type": TEXT, "type": TEXT, "rope_theta": number_rule(0), "factor": number_rule(1) | NULL}
# What `rope_parameters` replaces in the files of transformers before 5.
OLD_KEYS = ("rope_theta", "rope_scaling")


@dataclass(frozen=True)
class RotaryConfig(EncoderConfig):
    """A configuration with `rope_theta`, the base of the wavelengths, and `rope_factor`, by which positions are divided
    ("linear" scaling). Files have both in `rope_parameters`.

    Raises:
        ValueError: A head's width is odd, so that it can't be turned in pairs.
    """

    rope_theta: NonNegative = 10000.0
    rope_factor: Annotated[float, number_rule(1)] = 1.0

    hf_names = MappingProxyType({"rope_theta": None, "rope_factor": None})

    def __post_init__(self):
        super().__post_init__()
        if self.head_size % 2:
            raise ValueError(
                f"hidden_size / num_attention_heads must be even. Received: {self.hidden_size} and "
                f"{self.num_attention_heads}."
            )

    def to_hf(self) -> dict[str, Any]:
        content = super().to_hf()
        rope = {"rope_theta": self.rope_theta, "rope_type": "default"}
        if self.rope_factor != 1:
            rope |= {"rope_type": "linear", "factor": self.rope_factor}
        content["rope_parameters"] = rope
        if "head_dim" in content:
            content["head_dim"] = self.head_size
        return content

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> Self:
        check_values(content, {"rope_parameters": OBJECT | NULL, "rope_scaling": OBJECT | NULL})
        rope = {**(content.get("rope_scaling") or {}), **(content.get("rope_parameters") or {})}
        check_values(rope, ROPE_RULES, "rope_parameters.")
        check_values(content, {"rope_theta": number_rule(0)})
        kind, factor = rope.get("rope_type", rope.get("type", "default")), rope.get("factor") or 1.0
        if kind not in ("default", "linear"):
            raise ValueError(f'rope_type must be "default" or "linear". Received: {kind!r}.')
        config = super()._read({key: value for key, value in content.items() if key not in OLD_KEYS})
        if config.extra.get("head_dim") not in (None, config.head_size):
            raise ValueError(
                f"config.json has head_dim = {config.extra['head_dim']!r}; bertzoo computes hidden_size / "
                f"num_attention_heads, {config.head_size}."
            )
        theta = rope.get("rope_theta", content.get("rope_theta", cls.rope_theta))
        return config.replace(rope_theta=theta, rope_factor=factor if kind == "linear" else 1.0)


def pop_supported(content: dict[str, Any], supported_values: Mapping[str, tuple]) -> None:
    """Takes keys out of a configuration whose values are those that are computed here.

    Args:
        content: The configuration, from which the keys are removed.
        supported_values: Key -> its supported values, the first of them being the default.

    Raises:
        ValueError: A value is not supported.
    """
    for key, allowed in supported_values.items():
        if (value := content.pop(key, allowed[0])) not in allowed:
            supported = ", ".join(map(repr, allowed))
            raise ValueError(
                f"config.json has {key} = {value!r}, which bertzoo does not compute; supported: {supported}."
            )


def build_rotary_attention(config: Any, **options: Any) -> keras.layers.Layer:
    """The self-attention of a `RotaryConfig`.

    Args:
        config: The configuration.
        options: Further arguments of `RotaryAttention`.
    """
    return RotaryAttention(
        config.hidden_size,
        config.num_attention_heads,
        config.attention_probs_dropout_prob,
        config.initializer_range,
        theta=config.rope_theta,
        position_scale=config.rope_factor,
        **options,
    )
