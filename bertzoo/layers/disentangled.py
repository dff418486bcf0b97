"""Disentangled attention: contents attend to contents, to relative positions, and these to contents (He et al. 2021).

"DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.1; shared keys and log buckets are of its
second version.
"""

import math
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from bertzoo.backend import constant
from bertzoo.dispatch import operation
from bertzoo.layers.attention import AttentionMask, SelfAttention, as_attention_mask
from bertzoo.layers.base import HostTruncatedNormal, Layer, build_dense
from bertzoo.layers.embeddings import lookup
from bertzoo.layers.norm import LayerNorm, dropout
from bertzoo.random import Salt
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class RelativeEmbeddings(Layer):
    """The table of relative positions that all blocks share: anything -> (2 * span, hidden), normalised if asked for.

    Args:
        span: Half the number of rows.
        hidden_size: Their width.
        layer_norm_eps: Added to the variance; None for no normalisation.
        initializer_range: Standard deviation of the initial table.
    """

    def __init__(
        self,
        span: int,
        hidden_size: int,
        layer_norm_eps: float | None = None,
        initializer_range: float = 0.02,
        name: str = "relative",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.span, self.hidden_size = span, hidden_size
        self.layer_norm_eps, self.initializer_range = layer_norm_eps, initializer_range
        self.norm = None if layer_norm_eps is None else LayerNorm(layer_norm_eps, dtype=self.dtype_policy)

    def build(self, input_shape):
        shape = (2 * self.span, self.hidden_size)
        initializer = HostTruncatedNormal(self.initializer_range, f"{self.path}/table")
        self.table = self.add_weight(name="table", shape=shape, initializer=initializer, autocast=False)
        if self.norm is not None:
            self.norm.build(shape)

    def call(self, x: Tensor | None) -> Tensor:
        table = ops.convert_to_tensor(self.table)
        return ops.cast(table if self.norm is None else self.norm(table), self.compute_dtype)


@keras.saving.register_keras_serializable("bertzoo")
class DisentangledAttention(SelfAttention):
    """(batch, length, hidden) -> (batch, length, hidden), with `position_bias` the table of `RelativeEmbeddings`.

    The score of query i and key j is (q_i·k_j + q_i·pk_r + k_j·pq_r) / √(head size · number of terms), where pk and pq
    are projections of the table and r is the row of the distance i - j. Padding attends to all places alike.

    Args:
        hidden_size, num_heads, attention_dropout, initializer_range: As SelfAttention's.
        terms: Which of "c2p" (query and relative position) and "p2c" (key and relative position) there are.
        max_distance: Distances beyond it have the row of the last.
        buckets: Distances beyond half of it share rows on a logarithmic scale; 0 gives each a row of its own.
        share_projections: Project the table as the contents are, not with kernels of its own.
        position_dropout: Share of the table's elements dropped.
    """

    splits_projection = False
    supports_query_subset = False

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        attention_dropout: float = 0.0,
        initializer_range: float = 0.02,
        terms: Sequence[str] = ("c2p", "p2c"),
        max_distance: int = 512,
        buckets: int = 0,
        share_projections: bool = False,
        position_dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(hidden_size, num_heads, attention_dropout, initializer_range, **kwargs)
        self.terms, self.max_distance, self.buckets = tuple(terms), max_distance, buckets
        self.share_projections, self.position_dropout = share_projections, position_dropout
        self.rows = rows_of_distances(max_distance, buckets)
        # Both look-ups are in tables of two axes: for others Keras squeezes on PyTorch, which ONNX takes at its word.
        self._row_table = constant(self.rows[:, None])
        self.span = buckets or max_distance
        # Up to this length, a distance's row is the distance itself and the table needs no look-up.
        self.linear = int((self.rows[max_distance:] == self.span + np.arange(max_distance + 1)).cumprod().sum())
        self.position_key = self._position_dense("position_key", "c2p")
        self.position_query = self._position_dense("position_query", "p2c")

    def _position_dense(self, name, term):
        if self.share_projections or term not in self.terms:
            return None
        return keras.layers.Dense(self.hidden_size, name=name, dtype=self.dtype_policy)

    def build(self, input_shape):
        super().build(input_shape)
        for dense in (self.position_key, self.position_query):
            if dense is not None:
                build_dense(self, dense, self.hidden_size, self.initializer_range)

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
        if attention_mask is not None:
            mask = as_attention_mask(attention_mask).mask
            attention_mask = AttentionMask(
                ops.logical_and(mask, ops.transpose(mask, (0, 1, 3, 2))), as_attention_mask(attention_mask).lengths
            )
        return super().context(x, attention_mask, position_bias, key, return_attention, query)

    def project(self, x: Tensor, query: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = self.project_content(x)
        if query is not None:
            queries = self.project_content(query)[0]
        # Here for all terms but p2c, whose query is a position.
        return queries * (1.0 / math.sqrt(1 + len(self.terms))), keys, values

    def project_content(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, not scaled."""
        return super().project(x)

    def score_bias(
        self, query: Tensor, key: Tensor, position_bias: Tensor | None, dropout_key: Tensor | None
    ) -> Tensor | None:
        if position_bias is None or not self.terms:
            return None
        table = dropout(position_bias, self.position_dropout, dropout_key, Salt.POSITION_TABLE)
        position_query, position_key = self.positions_by_distance(table, ops.shape(query)[1])
        head_size = query.shape[-1]
        return distance_bias(
            query,
            key,
            position_query * (1.0 / math.sqrt(head_size * (1 + len(self.terms)))) if "p2c" in self.terms else None,
            position_key * (1.0 / math.sqrt(head_size)) if "c2p" in self.terms else None,
        )

    def positions_by_distance(self, table: Tensor, length: int) -> tuple[Tensor | None, Tensor | None]:
        """The queries and keys of the distances -length to length - 1, each (2 * length, heads, head size)."""
        static = isinstance(length, int)
        if static and length <= self.linear:
            return self.project_positions(table[self.span - length : self.span + length])
        # Of known length, they are a constant.
        library = np if static and isinstance(self._row_table, np.ndarray) else ops
        distance = library.arange(2 * length, dtype="int32") - length
        distance = library.clip(distance, -self.max_distance, self.max_distance)
        rows = library.take(self._row_table, distance + self.max_distance, axis=0)[:, 0]
        return tuple(None if part is None else _rows_of(part, rows) for part in self.project_positions(table))

    def project_positions(self, table: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """(rows, hidden) -> the positions' queries and keys, each (rows, heads, head size); None where not needed."""
        if self.share_projections:
            query, key, _ = (part[0] for part in self.project_content(table[None]))
            return query, key
        shape = (-1, self.num_heads, self.hidden_size // self.num_heads)
        denses = (self.position_query, self.position_key)
        return tuple(None if dense is None else ops.reshape(dense(table), shape) for dense in denses)


@keras.saving.register_keras_serializable("bertzoo")
class FirstDisentangledAttention(DisentangledAttention):
    """As DeBERTa's first version has it: a head's query, key and value side by side, and no bias of keys."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.qkv.use_bias = False
        if self.position_key is not None:
            self.position_key.use_bias = False

    def build(self, input_shape):
        super().build(input_shape)
        self.query_bias = self.add_weight(name="query_bias", shape=(self.hidden_size,), initializer="zeros")
        self.value_bias = self.add_weight(name="value_bias", shape=(self.hidden_size,), initializer="zeros")

    def project_content(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        head = (self.num_heads, self.hidden_size // self.num_heads)
        qkv = ops.reshape(self.qkv(x), (ops.shape(x)[0], ops.shape(x)[1], head[0], 3, head[1]))
        query = qkv[:, :, :, 0] + ops.reshape(self.query_bias, head)
        return query, qkv[:, :, :, 1], qkv[:, :, :, 2] + ops.reshape(self.value_bias, head)


def _rows_of(table, rows):
    """(all rows, …), int (rows,) -> (rows, …)."""
    return ops.reshape(lookup(ops.reshape(table, (table.shape[0], -1)), rows), (-1, *table.shape[1:]))


@operation
def distance_bias(
    query: Tensor, key: Tensor, position_query: Tensor | None, position_key: Tensor | None, axes: str = "bh"
) -> Tensor:
    """The scores of contents with positions, (batch, heads, length, length), or (heads, batch, …) with `axes` "hb".

    Args:
        query, key: (batch, length, heads, head size).
        position_query, position_key: Those of the distances -length to length - 1, (2 * length, heads, head size);
            None for a term that there is not.
    """
    length, bias = ops.shape(query)[1], 0.0
    if position_key is not None:
        # In descending order of distance, which is the order of a query's keys.
        position_key = ops.flip(position_key, axis=0)
        bias = skew(ops.einsum(f"bthd,rhd->{axes}tr", query, position_key), length - 1)
    if position_query is not None:
        by_key = skew(ops.einsum(f"bshd,rhd->{axes}sr", key, position_query), length)
        bias = bias + ops.transpose(by_key, (0, 1, 3, 2))
    return bias


def skew(x: Tensor, first: int) -> Tensor:
    """(…, …, length, 2 * length) -> (…, …, length, length): element j of row i is x[…, i, first - i + j].

    Rows of 2 * length elements, read as rows of one element less, begin one element earlier each: a shift, not a
    look-up.
    """
    *outer, length = ops.shape(x)[:3]
    size = length * (2 * length - 1)
    flat = ops.reshape(x, (*outer, 2 * length * length))[:, :, first : first + size]
    return ops.reshape(flat, (*outer, length, 2 * length - 1))[:, :, :, :length]


def rows_of_distances(max_distance: int, buckets: int = 0) -> np.ndarray:
    """The table's row of each distance from -max_distance to max_distance: int32 (2 max_distance + 1,).

    Made once on the host, since a logarithm's last bit decides where some buckets begin.
    """
    distance = np.arange(-max_distance, max_distance + 1)
    span = buckets or max_distance
    bucket = distance
    if buckets:
        half = buckets // 2
        far = np.maximum(np.abs(distance), half).astype("float32")
        steps = np.log(far / half) / np.log(np.float32((max_distance - 1) / half)) * (half - 1)
        bucket = np.where(np.abs(distance) <= half, distance, np.sign(distance) * (np.ceil(steps) + half))
    return np.clip(bucket + span, 0, 2 * span - 1).astype("int32")
