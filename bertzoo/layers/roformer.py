"""RoFormer's rotary positions (Su et al. 2021, section 3.4.2): neighbours in a vector turn by an angle that grows with
the position."""

from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.layers.attention import AttentionMask, SelfAttention
from bertzoo.layers.base import Layer
from bertzoo.layers.functional import lookup_rows
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class RotaryTable(Layer):
    """(batch, length, …) -> float32 (2, length, 1, head size / 2), or with `position_ids` (2, batch, length, 1, head
    size / 2): the sine and cosine of each position's angles.

    They are a weight that is not trained, since files hold them.

    Args:
        max_positions: Rows of the table.
        head_size: Width of an attention head, an even number.
        name: The layer's name.
    """

    def __init__(self, max_positions: int, head_size: int, name: str = "relative", **kwargs):
        super().__init__(name=name, **kwargs)
        self.max_positions, self.head_size = max_positions, head_size

    def build(self, input_shape: Any) -> None:
        self.table = self.add_weight(
            name="table",
            shape=(self.max_positions, self.head_size),
            initializer=lambda shape, dtype=None: ops.convert_to_tensor(_sinusoids(*shape), dtype=dtype),
            trainable=False,
            autocast=False,
        )

    def call(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        half = self.head_size // 2
        if position_ids is not None:
            table = lookup_rows(self.table, position_ids)
            return ops.stack([table[..., :half], table[..., half:]])[:, :, :, None]
        if x.shape[1] is not None and x.shape[1] > self.max_positions:
            raise ValueError(
                f"Expected at most {self.max_positions} tokens, the rows of the position table. Received: {x.shape[1]} "
                f"tokens. Truncate the texts (max_length={self.max_positions}), or take a model with more positions."
            )
        table = self.table[: ops.shape(x)[1]]
        return ops.stack([table[:, :half], table[:, half:]])[:, :, None]


def _sinusoids(positions: int, width: int) -> np.ndarray:
    """The sines of position · 10000^(-2i / width), then their cosines: float32 (positions, width)."""
    angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float32")


@keras.saving.register_keras_serializable("bertzoo")
class RoFormerAttention(SelfAttention):
    """(batch, length, hidden) -> (batch, length, hidden), with `position_bias` the output of `RotaryTable`.

    A `query` of other vectors has positions from 0 on. Without `position_bias` nothing is turned.

    Args:
        args, kwargs: SelfAttention's.
        rotary_value: Whether values are turned too.
    """

    splits_projection = False

    def __init__(self, *args, rotary_value: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.rotary_value = rotary_value

    def _project(self, x: Tensor, query: Any = None, position_bias: Any = None) -> tuple[Tensor, ...]:
        queries, keys, values = super()._project(x, query, position_bias)
        if position_bias is None:
            return queries, keys, values
        queries = _rotate_neighbours(queries, position_bias[..., : ops.shape(queries)[1], :, :])
        keys = _rotate_neighbours(keys, position_bias)
        return queries, keys, _rotate_neighbours(values, position_bias) if self.rotary_value else values

    def _mask_and_bias(
        self, queries: Tensor, keys: Tensor, mask: AttentionMask | None, bias: Tensor | None, key: Tensor | None
    ) -> tuple[AttentionMask | None, Tensor | None]:
        # Without lengths: with them a kernel may leave padding out, which multiple choice reads.
        return None if mask is None else mask._replace(lengths=None), None


def _rotate_neighbours(x: Tensor, sin_cos: Tensor) -> Tensor:
    """Turns the pairs (x[2i], x[2i + 1]) of the last axis by angles, in float32; same shape and dtype as x.

    Args:
        x: (batch, length, heads, head size).
        sin_cos: (2, length, 1, head size / 2) or (2, batch, length, 1, head size / 2).
    """
    sin, cos = (ops.cast(sin_cos[i], "float32") for i in range(2))
    even, odd = ops.cast(x[..., ::2], "float32"), ops.cast(x[..., 1::2], "float32")
    turned = ops.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1)
    return ops.cast(ops.reshape(turned, ops.shape(x)), x.dtype)
