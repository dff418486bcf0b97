"""Disentangled attention: contents attend to contents, to relative positions, and these to contents (He et al. 2021).

"DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.1; shared keys and log buckets are of its
second version.
"""

import math
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from bertzoo.accelerator import accelerator
from bertzoo.layers.attention import AttentionMask, SelfAttention, as_attention_mask
from bertzoo.layers.dropout import dropout
from bertzoo.layers.embeddings import constant, lookup
from bertzoo.layers.initialization import HostTruncatedNormal, build_dense
from bertzoo.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable("bertzoo")
class RelativeEmbeddings(keras.layers.Layer):
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

    def call(self, x):
        table = ops.convert_to_tensor(self.table)
        return ops.cast(table if self.norm is None else self.norm(table), self.compute_dtype)

    def get_config(self):
        names = ("span", "hidden_size", "layer_norm_eps", "initializer_range")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


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
        # On a GPU the products come with heads first. To put examples first costs a copy of each, twice as long as the
        # scores; the sum is moved instead. On a CPU XLA is 10 % faster with examples first. Asked here, not in each
        # call, which PyTorch would have to compile.
        self.heads_first = accelerator() is not None

    def context(self, x, attention_mask, position_bias, key, return_attention, query):
        """As SelfAttention's."""
        if attention_mask is not None:
            mask = as_attention_mask(attention_mask).mask
            attention_mask = AttentionMask(
                ops.logical_and(mask, ops.transpose(mask, (0, 1, 3, 2))), as_attention_mask(attention_mask).lengths
            )
        return super().context(x, attention_mask, position_bias, key, return_attention, query)

    def project(self, x):
        query, key, value = self.project_content(x)
        # Here for all terms but p2c, whose query is a position.
        return query * (1.0 / math.sqrt(1 + len(self.terms))), key, value

    def project_content(self, x):
        """Queries, keys and values, not scaled."""
        return super().project(x)

    def score_bias(self, query, key, position_bias, dropout_key):
        if position_bias is None or not self.terms:
            return None
        length, head_size = ops.shape(query)[1], query.shape[-1]
        table = dropout(position_bias, self.position_dropout, dropout_key, salt=3)
        position_query, position_key = self.positions_by_distance(table, length)
        axes, bias = "hb" if self.heads_first else "bh", 0.0
        if "c2p" in self.terms:
            # In descending order of distance, which is the order of a query's keys.
            position_key = ops.flip(position_key, axis=0) * (1.0 / math.sqrt(head_size))
            bias = skew(ops.einsum(f"bthd,rhd->{axes}tr", query, position_key), length - 1)
        if "p2c" in self.terms:
            position_query = position_query * (1.0 / math.sqrt(head_size * (1 + len(self.terms))))
            by_key = skew(ops.einsum(f"bshd,rhd->{axes}sr", key, position_query), length)
            bias = bias + ops.transpose(by_key, (0, 1, 3, 2))
        return ops.transpose(bias, (1, 0, 2, 3)) if self.heads_first else bias

    def positions_by_distance(self, table, length):
        """The queries and keys of the distances -length to length - 1, each (2 * length, heads, head size)."""
        static = isinstance(length, int)
        if static and length <= self.linear:
            return self.project_positions(table[self.span - length : self.span + length])
        place = np if static and isinstance(self._row_table, np.ndarray) else ops
        distance = place.clip(place.arange(2 * length, dtype="int32") - length, -self.max_distance, self.max_distance)
        rows = place.take(self._row_table, distance + self.max_distance, axis=0)[:, 0]
        return tuple(None if part is None else _rows_of(part, rows) for part in self.project_positions(table))

    def project_positions(self, table):
        """(rows, hidden) -> the positions' queries and keys, each (rows, heads, head size); None where not needed."""
        if self.share_projections:
            query, key, _ = (part[0] for part in self.project_content(table[None]))
            return query, key
        shape = (-1, self.num_heads, self.hidden_size // self.num_heads)
        denses = (self.position_query, self.position_key)
        return tuple(None if dense is None else ops.reshape(dense(table), shape) for dense in denses)

    def get_config(self):
        names = ("terms", "max_distance", "buckets", "share_projections", "position_dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


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

    def project_content(self, x):
        head = (self.num_heads, self.hidden_size // self.num_heads)
        qkv = ops.reshape(self.qkv(x), (ops.shape(x)[0], ops.shape(x)[1], head[0], 3, head[1]))
        query = qkv[:, :, :, 0] + ops.reshape(self.query_bias, head)
        return query, qkv[:, :, :, 1], qkv[:, :, :, 2] + ops.reshape(self.value_bias, head)


def _rows_of(table, rows):
    """(all rows, …), int (rows,) -> (rows, …)."""
    return ops.reshape(lookup(ops.reshape(table, (table.shape[0], -1)), rows), (-1, *table.shape[1:]))


def skew(x, first):
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
