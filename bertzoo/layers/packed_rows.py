"""Packed rows: the texts of a padded batch side by side in fewer rows, so that hardly any padding is computed."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from bertzoo.layers.functional import gather_positions, lookup_rows
from bertzoo.random import TokenKey, fold_in
from bertzoo.types import Tensor


class PackedRows:
    """Where the tokens of a padded batch (batch, length) stand in packed rows (rows, row length).

    Args:
        packing: int32 (rows, row length): the index of each token in the flattened batch, -1 at padding. The tokens of
            a text stand side by side in one row.
        text_starts: int32 (batch,): the index of each text's first token in the flattened rows.
        length: That of the padded batch.
        first_text: The number of the first text, on which dropout depends, where the batch is a part of another.
    """

    def __init__(self, packing: Tensor, text_starts: Tensor, length: Any, first_text: Any = 0):
        real, self._indices = packing >= 0, ops.maximum(packing, 0)
        self._text_starts, self._length = ops.cast(text_starts, "int32"), length
        # The number of each token's text, -1 at padding, and the token's position in its text.
        self.text_ids = ops.where(real, self._indices // length + first_text, -1)
        self.position_ids = self._indices % length

    @classmethod
    def of(cls, inputs: Mapping[str, Tensor]) -> "PackedRows | None":
        """The rows of an encoder's inputs; None where they are not packed."""
        if "packing" not in inputs:
            return None
        length = ops.shape(inputs["token_ids"])[1]
        return cls(inputs["packing"], inputs["text_starts"], length, inputs.get("first_text", 0))

    def pack(self, x: Tensor | None) -> Tensor | None:
        """(batch, length, …) -> (rows, row length, …), with any of x's elements at padding. None stays None."""
        if x is None:
            return None
        flat = ops.reshape(x, (-1, *ops.shape(x)[2:]))
        has_gradient = "float" in keras.backend.standardize_dtype(x.dtype)
        return lookup_rows(flat, self._indices) if has_gradient else ops.take(flat, self._indices, axis=0)

    def gather(self, x: Tensor, positions: Tensor | str) -> Tensor:
        """(rows, row length, width) -> (batch, count, width): the tokens at these positions, int (batch, count),
        counted from the first token of each text; the first where `positions` is FIRST."""
        return lookup_rows(ops.reshape(x, (-1, x.shape[-1])), self._places(positions))

    def gather_key(self, key: Tensor, positions: Tensor | str) -> TokenKey:
        """The dropout key for what `gather` gives."""
        places = self._places(positions)
        text_ids, position_ids = (ops.reshape(x, (-1,)) for x in (self.text_ids, self.position_ids))
        return TokenKey(key, ops.take(text_ids, places, axis=0), ops.take(position_ids, places, axis=0))

    def _places(self, positions: Tensor | str) -> Tensor:
        """The indices of tokens in the flattened rows, int32 (batch, count)."""
        starts = self._text_starts[:, None]
        return starts if isinstance(positions, str) else starts + ops.cast(positions, "int32")

    def unpack(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        """(rows, row length, width) -> (batch, length, width), 0 at padding.

        Args:
            x: Packed vectors.
            padding_mask: (batch, length), 1 at real tokens.
        """
        real = ops.cast(padding_mask, "bool")
        positions = ops.where(real, ops.arange(self._length, dtype="int32"), 0)
        return ops.where(real[:, :, None], self.gather(x, positions), ops.zeros((), x.dtype))


def layer_keys(dropout_key: Tensor | None, inputs: Mapping[str, Tensor], rows: PackedRows | None) -> Callable:
    """The number of an encoder's layer, from the embeddings on -> its dropout key; None where there is no key.

    Args:
        dropout_key: int32 (2,), or None at inference.
        inputs: The encoder's; a padded batch that is a part of another has `first_text`.
        rows: Its packed rows, if it has some.
    """
    if dropout_key is None:
        return lambda number: None
    if rows is not None:
        tokens = (rows.text_ids, rows.position_ids)
    elif "first_text" in inputs:
        batch, length = ops.shape(inputs["token_ids"])
        texts, positions = (ops.arange(size, dtype="int32") for size in (batch, length))
        columns = ((texts + inputs["first_text"])[:, None], positions[None])
        tokens = tuple(ops.broadcast_to(x, (batch, length)) for x in columns)
    else:
        return lambda number: fold_in(dropout_key, number)
    return lambda number: TokenKey(fold_in(dropout_key, number), *tokens)


class Selection:
    """The tokens whose output is wanted: (batch, length, width) or packed rows -> (batch, count, width).

    Args:
        positions: FIRST, or int (batch, count), positions in each text.
        rows: The packed rows, if there are any.
    """

    def __init__(self, positions: Any, rows: PackedRows | None):
        self._positions, self._rows = positions, rows

    def __call__(self, x: Tensor) -> Tensor:
        return gather_positions(x, self._positions) if self._rows is None else self._rows.gather(x, self._positions)

    def key(self, key: Any, x: Tensor) -> TokenKey | None:
        """The dropout key for selected tokens x, which drops what would be dropped if all were computed."""
        if key is None:
            return None
        if self._rows is not None:
            return self._rows.gather_key(key.key, self._positions)
        shape = ops.shape(x)[:2]
        part = isinstance(key, TokenKey)
        texts = key.text_ids[:, :1] if part else ops.arange(shape[0], dtype="int32")[:, None]
        texts = ops.broadcast_to(texts, shape)
        first = isinstance(self._positions, str)
        positions = ops.zeros_like(texts) if first else ops.cast(self._positions, "int32")
        return TokenKey(key.key if part else key, texts, positions)
