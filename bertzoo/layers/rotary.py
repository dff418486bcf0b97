"""Self-attention with rotary positions (Su et al. 2021), within a window or not, its heads in groups or not."""

from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.backend import as_backend_constant
from bertzoo.layers.attention import AttentionMask, SelfAttention
from bertzoo.layers.base import build_dense
from bertzoo.layers.functional import apply_dense
from bertzoo.layers.local_attention import has_key_mask, local_attention, pays_off
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class RotaryAttention(SelfAttention):
    """(batch, length, hidden) -> (batch, length, hidden): self-attention with rotary positions (Su et al. 2021).

    Args:
        args, kwargs: SelfAttention's.
        theta: Base of the wavelengths.
        position_scale: Positions are divided by this (Chen et al. 2023, "Extending Context Window", equation 3).
        num_key_value_heads: Heads of keys and values, each for as many heads of queries (Ainslie et al. 2023, "GQA");
            `num_heads` where None.
        window: Tokens farther apart than this do not see each other; None for no limit.
        use_bias: Whether the dense layers have biases.
        output_initializer_range: Standard deviation of the output's initial kernel; `initializer_range` where None.
    """

    splits_projection = False

    def __init__(
        self,
        *args,
        theta: float = 10000.0,
        position_scale: float = 1.0,
        num_key_value_heads: int | None = None,
        window: int | None = None,
        use_bias: bool = False,
        output_initializer_range: float | None = None,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.theta, self.position_scale, self.window, self.use_bias = theta, position_scale, window, use_bias
        self.num_key_value_heads = self.num_heads if num_key_value_heads is None else num_key_value_heads
        if self.num_heads % self.num_key_value_heads:
            raise ValueError(
                "num_heads must be a multiple of num_key_value_heads. Received: "
                f"{self.num_heads} and {self.num_key_value_heads}."
            )
        self.output_initializer_range = (
            self.initializer_range if output_initializer_range is None else output_initializer_range
        )
        self.qkv.use_bias = self.output_dense.use_bias = use_bias
        self.qkv.units = (self.num_heads + 2 * self.num_key_value_heads) * (self.hidden_size // self.num_heads)

    def build(self, input_shape: Any) -> None:
        build_dense(self, self.qkv, self.hidden_size, self.initializer_range)
        build_dense(self, self.output_dense, self.hidden_size, self.output_initializer_range)
        head_size = self.hidden_size // self.num_heads
        self._frequency = as_backend_constant(rotary_frequencies(head_size, self.theta, self.position_scale))

    def _mask_and_bias(
        self, queries: Tensor, keys: Tensor, mask: AttentionMask | None, bias: Tensor | None, key: Tensor | None
    ) -> tuple[AttentionMask | None, Tensor | None]:
        length = ops.shape(keys)[1]
        if self.window is not None and not (isinstance(length, int) and length <= self.window + 1):
            position = ops.arange(length, dtype="int32")
            near = (ops.abs(position[:, None] - position[None, :]) <= self.window)[None, None]
            mask = AttentionMask(near if mask is None else ops.logical_and(mask.mask, near))
        return mask, bias

    def _attend(self, queries, keys, values, mask, bias, key, cross) -> Tensor:
        length = ops.shape(keys)[1]
        if self.window is None or (isinstance(length, int) and not pays_off(length, self.window)):
            return super()._attend(queries, keys, values, mask, bias, key, cross)
        if cross or bias is not None or not has_key_mask(mask):
            return super()._attend(queries, keys, values, mask, bias, key, cross)
        return local_attention(queries, keys, values, self.window, mask)

    def _project(self, x: Tensor, query: Any = None, position_bias: Any = None) -> tuple[Tensor, ...]:
        queries, keys, values = self._split_groups(x, query) if self._is_grouped else super()._project(x, query)
        angles = self._angles(x)
        queries = _rotate_halves(queries, *(angles if query is None else self._angles(query)))
        keys = _rotate_halves(keys, *angles)
        if self._is_grouped:
            keys, values = (ops.repeat(x, self.num_heads // self.num_key_value_heads, axis=2) for x in (keys, values))
        return queries, keys, values

    @property
    def _is_grouped(self) -> bool:
        return self.num_key_value_heads != self.num_heads

    def _split_groups(self, x: Tensor, query: Any) -> list[Tensor]:
        """Queries, keys and values, (batch, length, own heads, head size) each."""
        heads, groups, size = self.num_heads, self.num_key_value_heads, self.hidden_size // self.num_heads
        of_queries, projection = slice(0, heads * size), apply_dense(self.qkv, x)
        queries = projection[..., of_queries] if query is None else apply_dense(self.qkv, query, of_queries)
        keys, values = (projection[..., (heads + i * groups) * size :][..., : groups * size] for i in range(2))
        return [
            ops.reshape(part, (*ops.shape(part)[:2], count, size))
            for part, count in ((queries, heads), (keys, groups), (values, groups))
        ]

    def _angles(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine for each position, (length, 1, head size / 2) each."""
        position = ops.arange(ops.shape(x)[1], dtype="float32")
        angle = position[:, None, None] * self._frequency
        return ops.cos(angle), ops.sin(angle)


def rotary_frequencies(head_size: int, theta: float, position_scale: float = 1.0) -> np.ndarray:
    """The angles by which the pairs of a vector turn from one position to the next: float32 (head size / 2,)."""
    return theta ** (-np.arange(0, head_size, 2, dtype="float32") / head_size) / np.float32(position_scale)


def _rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (x[i], x[i + half]) of the last axis by angles, in float32; same shape and dtype as x."""
    half = x.shape[-1] // 2
    first, second = ops.cast(x[..., :half], "float32"), ops.cast(x[..., half:], "float32")
    turned = ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return ops.cast(turned, x.dtype)
