"""A learnt bias of attention scores by relative distance, in buckets (Raffel et al. 2020, section 2.1)."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.backend import as_backend_constant
from bertzoo.layers.base import Layer
from bertzoo.layers.functional import lookup_rows
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class RelativeBias(Layer):
    """(batch, length, …) -> float32 (1, heads, length, length): what to add to the scaled scores of query i and key j.

    Half of the buckets are for keys after the query. Half of each half have one distance each; the others have ranges
    on a logarithmic scale up to `max_distance`, and the last all distances beyond.

    Args:
        num_heads: Number of attention heads.
        num_buckets: Number of buckets.
        max_distance: Distances from here on are in the last bucket.
        initializer_range: Standard deviation of the initial table.
        name: The layer's name.
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        initializer_range: float = 0.02,
        name: str = "relative",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.num_heads, self.num_buckets, self.max_distance = num_heads, num_buckets, max_distance
        self.initializer_range = initializer_range

    def build(self, input_shape: Any) -> None:
        self.table = self.add_embedding_table("table", self.num_buckets, self.num_heads)
        self._offset_buckets = as_backend_constant(buckets_of_offsets(self.num_buckets, self.max_distance))

    def call(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        # Distances in a row that texts share are those in the text, so that position_ids are not needed.
        position = ops.arange(ops.shape(x)[1], dtype="int32")
        offset = ops.clip(position[None, :] - position[:, None], -self.max_distance, self.max_distance)
        by_offset = lookup_rows(self.table, self._offset_buckets)
        return ops.transpose(lookup_rows(by_offset, offset + self.max_distance), (2, 0, 1))[None]


def buckets_of_offsets(num_buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of key position - query position, for -max_distance to max_distance: int32 (2 max_distance + 1,)."""
    half = num_buckets // 2
    exact = half // 2
    # Where each logarithmic bucket starts: made of integers, so that no backend's logarithm decides an edge.
    ratio = max_distance / exact
    starts = [math.ceil(exact * ratio ** (k / (half - exact)) - 1e-9) for k in range(1, half - exact)]
    offset = np.arange(-max_distance, max_distance + 1)
    distance = np.abs(offset)
    bucket = np.minimum(distance, exact) + np.searchsorted(starts, distance, side="right")
    return (bucket + half * (offset > 0)).astype("int32")
