"""Token, segment and position embeddings, summed, normalised and dropped out (Devlin et al. 2019, section 3)."""

from typing import Any

import keras
from keras import ops

from bertzoo.layers.base import DropoutLayer, build_dense
from bertzoo.layers.functional import LayerNorm, dropout, lookup_in_small_table, lookup_positions, lookup_rows
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class Embeddings(DropoutLayer):
    """int (batch, length) -> float (batch, length, width), or (batch, length, projection).

    Args:
        vocab_size, width: Shape of the token table.
        max_positions, num_segments: Rows of the tables of positions and segments; 0 for no table.
        pad_id: Where given (RoBERTa), positions count the real tokens, from row `pad_id + 1`, and padding gets row
            `pad_id`; None counts all tokens from row 0 (BERT).
        hidden_dropout: Fraction of elements dropped after normalisation.
        layer_norm_eps, norm_bias: The normalisation's epsilon, and whether it has a bias.
        initializer_range: Standard deviation of the initial tables.
        projection: Width of a dense layer at the end, for tables narrower than the encoder (Lan et al. 2020, 3.1).
        name: The layer's name.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        max_positions: int = 512,
        num_segments: int = 2,
        pad_id: int | None = None,
        hidden_dropout: float = 0.0,
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        projection: int | None = None,
        norm_bias: bool = True,
        name: str = "embeddings",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.vocab_size, self.width, self.max_positions = vocab_size, width, max_positions
        self.num_segments, self.pad_id, self.hidden_dropout = num_segments, pad_id, hidden_dropout
        self.layer_norm_eps, self.initializer_range = layer_norm_eps, initializer_range
        self.projection, self.norm_bias, self.norm_width, self.dense = projection, norm_bias, width, None
        if projection is not None:
            self.dense = keras.layers.Dense(projection, name="projection", dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        self._make_tables()
        self.norm = LayerNorm(self.layer_norm_eps, self.norm_bias, dtype=self.dtype_policy)
        self.norm.build((None, None, self.norm_width))
        if self.dense is not None:
            build_dense(self, self.dense, self.width, self.initializer_range)

    def _make_tables(self) -> None:
        self.token = self.add_embedding_table("token", self.vocab_size, self.width)
        self.position = self.add_embedding_table("position", self.max_positions, self.width)
        self.segment = self.add_embedding_table("segment", self.num_segments, self.width)

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
        key: Tensor | None = None,
        perturbation: Tensor | None = None,
        position_ids: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """
        Args:
            token_ids, segment_ids: int (batch, length); segments are all 0 where left out.
            padding_mask: int or bool (batch, length), 1 at real tokens; for families whose embeddings depend on it.
            key: Dropout key, int32 (2,), or a TokenKey for packed rows; where none is passed, one of the layer's own in
                training.
            perturbation: float (batch, length, norm_width), added between normalisation and scale, if there is one.
            position_ids: int (batch, length), rows of the position table; those of `position_rows` where left out.
        """
        key = self.resolve_dropout_key(key, training)
        return self._finish(self._sum_tables(token_ids, segment_ids, position_ids), padding_mask, key, perturbation)

    def _finish(self, x, padding_mask, key, perturbation) -> Tensor:
        x = dropout(self._normalize(x, perturbation), self.hidden_dropout, key)
        return x if self.dense is None else self.dense(x)

    def _normalize(self, x: Tensor, perturbation: Tensor | None) -> Tensor:
        x = self.norm(x)
        if perturbation is None:
            return x
        return x + ops.cast(ops.cast(perturbation, "float32") * self.norm.gamma, x.dtype)

    def _sum_tables(self, token_ids: Tensor, segment_ids: Tensor | None, position_ids: Tensor | None) -> Tensor:
        x = lookup_rows(self.token, token_ids)
        # The order of the sum is Hugging Face's, for equality to the last bits.
        if self.segment is not None:
            x = x + (lookup_in_small_table(self.segment, segment_ids) if segment_ids is not None else self.segment[0])
        if self.position is not None:
            x = x + self._positions(token_ids, position_ids)
        return ops.cast(x, self.compute_dtype)

    def _positions(self, token_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        if position_ids is not None:
            return lookup_positions(self.position, position_ids, self.compute_dtype)
        self._check_length(token_ids)
        if self.pad_id is None:
            return self.position[: ops.shape(token_ids)[1]]
        return lookup_rows(self.position, self.position_rows(token_ids))

    def position_rows(self, token_ids: Tensor) -> Tensor | None:
        """The rows of the position table for texts, int (batch, length) -> int32 (batch, length); None without one."""
        if self.position is None:
            return None
        self._check_length(token_ids)
        if self.pad_id is None:
            return ops.broadcast_to(ops.arange(ops.shape(token_ids)[1], dtype="int32"), ops.shape(token_ids))
        real = ops.cast(token_ids != self.pad_id, "int32")
        return ops.cumsum(real, axis=1) * real + self.pad_id

    def _check_length(self, token_ids: Tensor) -> None:
        length, longest = token_ids.shape[1], self.max_positions - (0 if self.pad_id is None else self.pad_id + 1)
        if length is not None and length > longest:
            raise ValueError(
                f"Expected at most {longest} tokens, the rows of the position table. Received: {length} tokens. "
                f"Truncate the texts (max_length={longest}), or take a model with more positions."
            )
