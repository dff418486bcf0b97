"""DeBERTa's layers (He et al. 2021, 2023): disentangled attention, and what the models have besides.

Disentangled attention adds to content-to-content scores those of contents with relative positions ("DeBERTa:
Decoding-enhanced BERT with Disentangled Attention", section 3.1). Shared keys and log buckets are DeBERTa v2's.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.backend import as_backend_constant
from bertzoo.dispatch import dispatched_operation
from bertzoo.layers.attention import AttentionMask, SelfAttention, as_attention_mask
from bertzoo.layers.base import Layer, build_dense
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.embeddings import Embeddings
from bertzoo.layers.functional import LayerNorm, activation, add, dropout, lookup_rows
from bertzoo.layers.heads import ClassificationHead, MaskedLMHead
from bertzoo.random import Salt, drop_token_indices, fold_in
from bertzoo.types import Tensor

DECODER_STEPS = 2


@keras.saving.register_keras_serializable("bertzoo")
class RelativeEmbeddings(Layer):
    """The table of relative positions that all blocks share: anything -> (2 * span, hidden).

    Args:
        span: Half the number of rows.
        hidden_size: Their width.
        layer_norm_eps: Added to the variance; None for no normalisation.
        initializer_range: Standard deviation of the initial table.
        name: The layer's name.
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

    def build(self, input_shape: Any) -> None:
        self.table = self.add_embedding_table("table", 2 * self.span, self.hidden_size)
        if self.norm is not None:
            self.norm.build(self.table.shape)

    def call(self, x: Tensor | None, position_ids: Tensor | None = None) -> Tensor:
        table = ops.convert_to_tensor(self.table)
        return ops.cast(table if self.norm is None else self.norm(table), self.compute_dtype)


@keras.saving.register_keras_serializable("bertzoo")
class DisentangledAttention(SelfAttention):
    """(batch, length, hidden) -> (batch, length, hidden), with `position_bias` the table of `RelativeEmbeddings`.

    The score of query i and key j is (q_i·k_j + q_i·pk_r + k_j·pq_r) / √(head size · number of terms), where pk and pq
    are projections of the table and r is the row of the distance i - j. Queries at padding attend to all keys alike.

    Args:
        args, kwargs: SelfAttention's.
        terms: Which of "c2p" (query and relative position) and "p2c" (key and relative position) there are.
        max_distance: Distances beyond it have the row of the last.
        num_buckets: Distances beyond half of it share rows on a logarithmic scale; 0 gives each a row of its own.
        share_projections: Project the table as the contents are, not with kernels of its own.
        position_dropout: Fraction of the table's elements dropped.
    """

    splits_projection = False

    def __init__(
        self,
        *args,
        terms: Sequence[str] = ("c2p", "p2c"),
        max_distance: int = 512,
        num_buckets: int = 0,
        share_projections: bool = False,
        position_dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.terms, self.max_distance, self.num_buckets = tuple(terms), max_distance, num_buckets
        self.share_projections, self.position_dropout = share_projections, position_dropout
        self.rows = table_rows_of_distances(max_distance, num_buckets)
        # A table of two axes: for others Keras squeezes on PyTorch.
        self._row_table = as_backend_constant(self.rows[:, None])
        self.span = num_buckets or max_distance
        # Up to this length, a distance's row is the distance itself and the table needs no look-up.
        self.linear = int((self.rows[max_distance:] == self.span + np.arange(max_distance + 1)).cumprod().sum())
        self.position_key = self._position_dense("position_key", "c2p")
        self.position_query = self._position_dense("position_query", "p2c")

    def _position_dense(self, name: str, term: str) -> keras.layers.Layer | None:
        if self.share_projections or term not in self.terms:
            return None
        return keras.layers.Dense(self.hidden_size, name=name, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        for dense in (self.position_key, self.position_query):
            if dense is not None:
                build_dense(self, dense, self.hidden_size, self.initializer_range)

    def _project(self, x: Tensor, query: Any = None, position_bias: Any = None) -> tuple[Tensor, ...]:
        queries, keys, values = self._project_content(x)
        if query is not None:
            queries = self._project_content(query)[0]
        # Here for all terms but p2c, whose query is a position.
        return queries * (1.0 / math.sqrt(1 + len(self.terms))), keys, values

    def _project_content(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, not scaled."""
        return super()._project(x)

    def _mask_and_bias(
        self, queries: Tensor, keys: Tensor, mask: AttentionMask | None, bias: Tensor | None, key: Tensor | None
    ) -> tuple[AttentionMask | None, Tensor | None]:
        if mask is not None:
            mask = mask._replace(mask=ops.logical_and(mask.mask, ops.transpose(mask.mask, (0, 1, 3, 2))))
        if bias is None or not self.terms:
            return mask, None
        table = dropout(bias, self.position_dropout, drop_token_indices(key), Salt.POSITION_TABLE)
        position_query, position_key = self._positions_by_distance(table, ops.shape(queries)[1])
        head_size = queries.shape[-1]
        scaled_query = scaled_key = None
        if "p2c" in self.terms:
            scaled_query = position_query * (1.0 / math.sqrt(head_size * (1 + len(self.terms))))
        if "c2p" in self.terms:
            scaled_key = position_key * (1.0 / math.sqrt(head_size))
        return mask, relative_position_scores(queries, keys, scaled_query, scaled_key)

    def _positions_by_distance(self, table: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """The queries and keys of the distances -length to length - 1, or None where the layer has no such term.

        Args:
            table: (2 * span, hidden).
            length: Number of tokens.

        Returns:
            Each (2 * length, heads, head size).
        """
        static = isinstance(length, int)
        if static and length <= self.linear:
            return self._project_positions(table[self.span - length : self.span + length])
        # Of known length, they are a constant.
        library = np if static and isinstance(self._row_table, np.ndarray) else ops
        distance = library.arange(2 * length, dtype="int32") - length
        distance = library.clip(distance, -self.max_distance, self.max_distance)
        rows = library.take(self._row_table, distance + self.max_distance, axis=0)[:, 0]
        query, key = self._project_positions(table)
        return _rows_of(query, rows), _rows_of(key, rows)

    def _project_positions(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, hidden) -> the positions' queries and keys, each (rows, heads, head size) or None."""
        if self.share_projections:
            query, key, _ = (projection[0] for projection in self._project_content(table[None]))
            return query, key
        shape = (-1, self.num_heads, self.hidden_size // self.num_heads)
        query, key = (d and ops.reshape(d(table), shape) for d in (self.position_query, self.position_key))
        return query, key


@keras.saving.register_keras_serializable("bertzoo")
class DisentangledAttentionV1(DisentangledAttention):
    """Disentangled attention of DeBERTa v1: the projection is ordered by head, and keys have no bias."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.qkv.use_bias = False
        if self.position_key is not None:
            self.position_key.use_bias = False

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.query_bias = self.add_weight(name="query_bias", shape=(self.hidden_size,), initializer="zeros")
        self.value_bias = self.add_weight(name="value_bias", shape=(self.hidden_size,), initializer="zeros")

    def _project_content(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        head = (self.num_heads, self.hidden_size // self.num_heads)
        qkv = ops.reshape(self.qkv(x), (ops.shape(x)[0], ops.shape(x)[1], head[0], 3, head[1]))
        query = qkv[:, :, :, 0] + ops.reshape(self.query_bias, head)
        return query, qkv[:, :, :, 1], qkv[:, :, :, 2] + ops.reshape(self.value_bias, head)


def _rows_of(table: Tensor | None, rows: Tensor) -> Tensor | None:
    """(all rows, …), int (rows,) -> (rows, …)."""
    if table is None:
        return None
    return ops.reshape(lookup_rows(ops.reshape(table, (table.shape[0], -1)), rows), (-1, *table.shape[1:]))


@dispatched_operation
def relative_position_scores(
    query: Tensor, key: Tensor, position_query: Tensor | None, position_key: Tensor | None, axes: str = "bh"
) -> Tensor:
    """The scores of contents with relative positions, (batch, heads, length, length), with `axes` "hb" heads first.

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


def table_rows_of_distances(max_distance: int, num_buckets: int = 0) -> np.ndarray:
    """The table's row of each distance from -max_distance to max_distance: int32 (2 max_distance + 1,).

    Computed on the host, since the last bit of a logarithm decides where some buckets begin.
    """
    distance = np.arange(-max_distance, max_distance + 1)
    span = num_buckets or max_distance
    bucket = distance
    if num_buckets:
        half = num_buckets // 2
        far = np.maximum(np.abs(distance), half).astype("float32")
        steps = np.log(far / half) / np.log(np.float32((max_distance - 1) / half)) * (half - 1)
        bucket = np.where(np.abs(distance) <= half, distance, np.sign(distance) * (np.ceil(steps) + half))
    return np.clip(bucket + span, 0, 2 * span - 1).astype("int32")


@keras.saving.register_keras_serializable("bertzoo")
class MaskedEmbeddings(Embeddings):
    """int (batch, length) -> float (batch, length, width), or (batch, length, projection); arguments as Embeddings'.

    The projection comes before the normalisation, and padding becomes 0.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.dense is not None:
            self.dense.use_bias, self.norm_width = False, self.projection or self.width

    def _finish(self, x, padding_mask, key, perturbation) -> Tensor:
        x = self._normalize(x if self.dense is None else self.dense(x), perturbation)
        if padding_mask is not None:
            x = ops.where(ops.cast(padding_mask, "bool")[:, :, None], x, ops.zeros((), x.dtype))
        return dropout(x, self.hidden_dropout, key)


@keras.saving.register_keras_serializable("bertzoo")
class ConvolvedBlock(EncoderBlock):
    """(batch, length, hidden) -> (batch, length, hidden): LayerNorm(block(x) + activation(convolution(x))).

    Both the convolution's and the final result are 0 at padding. Beyond the ends of a text the convolution reads zeros.

    Args:
        kernel_size: How many tokens the convolution sees; odd.
        convolution_activation: Name of its activation.
        args, kwargs: EncoderBlock's.
    """

    accepts_query = False

    def __init__(self, *args, kernel_size: int = 3, convolution_activation: str = "tanh", **kwargs):
        super().__init__(*args, **kwargs)
        self.kernel_size, self.convolution_activation = kernel_size, convolution_activation
        self.convolution = keras.layers.Conv1D(
            self.hidden_size, kernel_size, padding="same", name="convolution", dtype=self.dtype_policy
        )
        self.convolution_norm = LayerNorm(self.layer_norm_eps, name="convolution_norm", dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        build_dense(self, self.convolution, self.hidden_size, self.initializer_range)
        self.convolution_norm.build((None, None, self.hidden_size))

    def _forward(
        self, x, attention_mask, position_bias, key, return_attention, query, select
    ) -> tuple[Tensor, Tensor | None]:
        out, weights = super()._forward(x, attention_mask, position_bias, key, return_attention, query, select)
        mask, real = as_attention_mask(attention_mask), None  # (batch, length, 1)
        ids = None if mask is None else mask.text_ids
        near = self.convolution(x) if ids is None else self._convolve_texts(x, ids)
        if mask is not None:
            real = ops.transpose(mask.mask[:, 0], (0, 2, 1)) if ids is None else ids[:, :, None] >= 0
            near = ops.where(real, near, ops.zeros((), near.dtype))
        near = activation(self.convolution_activation)(dropout(near, self.hidden_dropout, key, Salt.CONVOLUTION))
        if select is not None:
            near, real = select(near), None  # a selected token is real, or nothing reads it
        out = self.convolution_norm(add(out, near))
        if real is not None:
            out = ops.where(real, out, ops.zeros((), out.dtype))
        return out, weights

    def _convolve_texts(self, x: Tensor, text_ids: Tensor) -> Tensor:
        """The convolution, of each text alone: a product of each token's neighbours in its text."""
        half, length = self.kernel_size // 2, ops.shape(x)[1]
        beyond = ops.zeros_like(x[:, :1])
        ends = [beyond] * half
        padded, ids = ops.concatenate([*ends, x, *ends], axis=1), text_ids[:, :, None]
        no_text = [ops.full_like(ids[:, :1], -2)] * half
        padded_ids = ops.concatenate([*no_text, ids, *no_text], axis=1)
        neighbours = [
            ops.where(padded_ids[:, i : i + length] == ids, padded[:, i : i + length], ops.zeros((), x.dtype))
            for i in range(self.kernel_size)
        ]
        kernel = ops.cast(ops.reshape(self.convolution.kernel, (-1, self.hidden_size)), x.dtype)
        return ops.matmul(ops.concatenate(neighbours, axis=-1), kernel) + ops.cast(self.convolution.bias, x.dtype)


@keras.saving.register_keras_serializable("bertzoo")
class EnhancedMaskDecoder(MaskedLMHead):
    """A MaskedLMHead after two more applications of the encoder's last block.

    Keys and values are the input of the last block; queries are that input plus absolute positions, then the output of
    the first application.

    Args:
        max_positions: Rows of the position table, which is as wide as the encoder.
        args, kwargs: MaskedLMHead's.
    """

    def __init__(self, *args, max_positions: int = 512, **kwargs):
        super().__init__(*args, **kwargs)
        self.max_positions = max_positions

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.position = self.add_embedding_table("position", self.max_positions, input_shape[-1])

    def hidden_states_to_decode(
        self,
        last_output: Tensor,
        last_input: Tensor,
        last_block: Callable,
        dropout_key: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        """The decoded vectors, shaped as `last_output`.

        Args:
            last_output, last_input, last_block, dropout_key, position_ids: As `MaskedLMHead` takes them.
        """
        length = ops.shape(last_input)[1]
        if isinstance(length, int) and position_ids is None and length > self.max_positions:
            raise ValueError(
                f"Expected at most {self.max_positions} tokens, the positions of this masked-LM head. Received: "
                f"{length} tokens. Truncate the texts (max_length), or take a model with more positions."
            )
        positions = self.position[:length] if position_ids is None else lookup_rows(self.position, position_ids)
        query = last_input + ops.cast(positions, last_input.dtype)
        for step in range(DECODER_STEPS):
            key = None if dropout_key is None else fold_in(dropout_key, step)
            query = last_block(query, key, selected=step == DECODER_STEPS - 1)
        return query


@keras.saving.register_keras_serializable("bertzoo")
class ContextHead(ClassificationHead):
    """(batch, length, hidden) -> (batch, length, labels): LayerNorm(first token + token), then a ClassificationHead.

    Args:
        layer_norm_eps: Added to the variance.
        args, kwargs: ClassificationHead's.
    """

    def __init__(self, *args, layer_norm_eps: float = 1e-7, **kwargs):
        super().__init__(*args, **kwargs)
        self.layer_norm_eps = layer_norm_eps
        self.norm = LayerNorm(layer_norm_eps, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.norm.build(input_shape)

    def call(self, x: Tensor, key: Tensor | None = None, training: bool | None = None) -> Tensor:
        return super().call(self.norm(x[:, :1] + x), key=key, training=training)
