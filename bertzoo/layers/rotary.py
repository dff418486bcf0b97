"""Self-attention with rotary positions (Su et al. 2021), among all tokens or those nearby (Warner et al. 2024)."""

import keras
import numpy as np
from keras import ops

from bertzoo.backend import constant
from bertzoo.layers.attention import AttentionMask, SelfAttention, as_attention_mask
from bertzoo.layers.base import build_dense
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class RotaryAttention(SelfAttention):
    """(batch, length, hidden) -> (batch, length, hidden).

    Args:
        hidden_size, num_heads, attention_dropout, initializer_range: As SelfAttention's.
        theta: Base of the wavelengths.
        window: Tokens farther apart than this do not see each other; None for no limit.
        use_bias: Whether the dense layers have biases.
        output_range: Standard deviation of the output's initial kernel; `initializer_range` where None.
    """

    splits_projection = False
    supports_query_subset = False

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        attention_dropout: float = 0.0,
        initializer_range: float = 0.02,
        theta: float = 10000.0,
        window: int | None = None,
        use_bias: bool = False,
        output_range: float | None = None,
        **kwargs,
    ):
        super().__init__(hidden_size, num_heads, attention_dropout, initializer_range, **kwargs)
        self.theta, self.window, self.use_bias = theta, window, use_bias
        self.output_range = initializer_range if output_range is None else output_range
        self.qkv.use_bias = self.output_dense.use_bias = use_bias

    def build(self, input_shape):
        build_dense(self, self.qkv, self.hidden_size, self.initializer_range)
        build_dense(self, self.output_dense, self.hidden_size, self.output_range)
        head_size = self.hidden_size // self.num_heads
        self._frequency = constant(self.theta ** (-np.arange(0, head_size, 2, dtype="float32") / head_size))

    def context(
        self,
        x: Tensor,
        attention_mask: AttentionMask | Tensor | None,
        position_bias: Tensor | None,
        key: Tensor | None,
        return_attention: bool,
        query: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """As SelfAttention's."""
        length = ops.shape(x)[1]
        if self.window is not None and not (isinstance(length, int) and length <= self.window + 1):
            position = ops.arange(length, dtype="int32")
            near = (ops.abs(position[:, None] - position[None, :]) <= self.window)[None, None]
            attention_mask = AttentionMask(
                near if attention_mask is None else ops.logical_and(as_attention_mask(attention_mask).mask, near)
            )
        return super().context(x, attention_mask, position_bias, key, return_attention, query)

    def project(self, x: Tensor, query: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = super().project(x, query)
        angles = self._angles(x)
        return rotate(queries, *(angles if query is None else self._angles(query))), rotate(keys, *angles), values

    def _angles(self, x):
        """Cosine and sine for each position, (length, 1, head size / 2) each."""
        position = ops.arange(ops.shape(x)[1], dtype="float32")
        angle = position[:, None, None] * self._frequency
        return ops.cos(angle), ops.sin(angle)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (x[i], x[i + half]) of the last axis by angles, in float32; same shape and dtype as x."""
    half = x.shape[-1] // 2
    first, second = ops.cast(x[..., :half], "float32"), ops.cast(x[..., half:], "float32")
    turned = ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return ops.cast(turned, x.dtype)
