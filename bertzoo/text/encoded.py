"""What a tokenizer takes and gives: texts, checked once, and token rows of unlike length, kept flat."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

HF_NAMES = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
ARRAYS = ("token_ids", "segment_ids", "padding_mask", "lengths")  # what a batch of rows is made of
PACKING = ("packing", "text_starts")  # where its tokens stand in packed rows


@dataclass(frozen=True)
class Encoded:
    """`n` rows of token ids end to end, about five bytes a token.

    Args:
        token_ids: (total,) int32.
        segment_ids: (total,) int8, the sentence of a pair that a token belongs to.
        row_splits: (n + 1,) int64; row i is `row_splits[i]:row_splits[i + 1]`.
        offsets: (total, 2) int32 or None; the characters `text[a:b]` that a token covers, (0, 0) for an added special
            token; in the second sentence of a pair they count from that sentence's start.
        word_ids: (total,) int32 or None; the number of the word within its sentence, -1 for an added special token.
    """

    token_ids: np.ndarray
    segment_ids: np.ndarray
    row_splits: np.ndarray
    offsets: np.ndarray | None = None
    word_ids: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: tokens in each row, special tokens included."""
        return np.diff(self.row_splits)

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> Encoded:
        """Rows of token ids, all of segment 0.

        Args:
            rows: The ids of each row.
        """
        ids = np.fromiter((i for row in rows for i in row), np.int64)
        splits = lengths_to_row_splits(np.array([len(row) for row in rows], np.int64))
        return cls(ids, np.zeros(len(ids), np.int8), splits)

    @property
    def text_lengths(self) -> np.ndarray:
        """(n,) int64: tokens of the text of each row, which is one text here."""
        return self.lengths

    def row(self, index: int) -> np.ndarray:
        """The token ids of one row, (length,) int32, without a copy. Raises `IndexError` past the end."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} is out of range: there are {len(self)} rows.")
        index %= len(self)
        return self.token_ids[self.row_splits[index] : self.row_splits[index + 1]]

    def slice_rows(self, begin: int, end: int) -> Encoded:
        """Some of the rows, without offsets and word ids.

        Args:
            begin: The first row.
            end: The row after the last.
        """
        tokens = slice(self.row_splits[begin], self.row_splits[end])
        splits = self.row_splits[begin : end + 1] - self.row_splits[begin]
        return Encoded(self.token_ids[tokens], self.segment_ids[tokens], splits)

    def pad(
        self, row_indices: Sequence[int] | np.ndarray, length: int, pad_id: int = 0, return_lengths: bool = False
    ) -> dict[str, np.ndarray]:
        """A padded batch of some rows.

        Args:
            row_indices: The indices of the rows, (batch,).
            length: The length of the batch. No row is cut: truncation is the tokenizer's.
            pad_id: The id of the padding token.
            return_lengths: Return the lengths of the rows too.

        Returns:
            `token_ids`, `segment_ids` and `padding_mask` (1 = real), each (batch, length) int32, and `lengths`,
            (batch,) int32.

        Raises:
            ValueError: A row is longer than `length`.
        """
        index, is_real = self._index(row_indices, length)
        inputs = {
            "token_ids": _spread(self.token_ids, index, is_real, pad_id),
            "segment_ids": _spread(self.segment_ids, index, is_real, 0),
            "padding_mask": is_real.astype(np.int32),
        }
        return {**inputs, "lengths": is_real.sum(axis=1, dtype=np.int32)} if return_lengths else inputs

    def pad_offsets(self, row_indices: Sequence[int] | np.ndarray, length: int) -> np.ndarray:
        """The character offsets of some rows.

        Args:
            row_indices: The indices of the rows, (batch,).
            length: The length of the batch.

        Returns:
            (batch, length, 2) int32, (0, 0) at padding.

        Raises:
            ValueError: There are no offsets, or a row is longer than `length`.
        """
        if self.offsets is None:
            raise ValueError("these rows carry no offsets: encode them with `return_offsets=True`.")
        index, is_real = self._index(row_indices, length)
        return _spread(self.offsets, index, is_real, 0)

    @staticmethod
    def concatenate(encoded: Sequence[Encoded]) -> Encoded:
        """All rows of several, in order. Offsets and word ids are kept if all have them."""

        def join(name: str) -> np.ndarray | None:
            arrays = [getattr(one, name) for one in encoded]
            return None if any(array is None for array in arrays) else np.concatenate(arrays)

        return Encoded(
            np.concatenate([one.token_ids for one in encoded]),
            np.concatenate([one.segment_ids for one in encoded]),
            lengths_to_row_splits(np.concatenate([one.lengths for one in encoded])),
            join("offsets"),
            join("word_ids"),
        )

    def _index(self, rows: Sequence[int] | np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of a padded batch stand in the flat arrays, and which of them are real."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.row_splits[rows + 1] - self.row_splits[rows]
        if len(rows) and lengths.max() > length:
            worst = int(lengths.argmax())
            raise ValueError(
                f"row {rows[worst]} has {lengths[worst]} tokens and does not fit the padded length {length}; "
                f"encode with a smaller max_length or pad to a larger one."
            )
        columns = np.arange(length)
        is_real = columns < lengths[:, None]
        return np.where(is_real, self.row_splits[rows][:, None] + columns, 0), is_real


def check_input_names(arrays: Mapping, known_names: Sequence[str]) -> None:
    """Refuses arrays that nothing would read, such as those under Hugging Face's names.

    Raises:
        ValueError: A name is unknown, or `token_ids` is missing.
    """
    unknown = [name for name in arrays if name not in known_names]
    if unknown or "token_ids" not in arrays:
        meant = [f"{HF_NAMES[name]} for {name}" for name in unknown if name in HF_NAMES]
        raise ValueError(
            f"inputs must hold token_ids and may hold {', '.join(known_names[1:])}. "
            f"Received: {', '.join(map(str, arrays))}." + (f" Use {', '.join(meant)}." if meant else "")
        )


def encoded_from_arrays(x: Any, vocabulary_size: int) -> Encoded:
    """Rows of tokens from padded arrays.

    Args:
        x: `token_ids` (n, length), or a dict of it and if wanted `segment_ids` and `padding_mask` of the same shape.
        vocabulary_size: All ids must be below it.

    Raises:
        ValueError: The arrays are missing, have other names, differ in shape, an id is out of its range, or padding
            stands before the end of a row.
    """
    x = x if isinstance(x, dict) else {"token_ids": x}
    check_input_names(x, ARRAYS)
    try:
        ids = np.asarray(x["token_ids"])
    except ValueError:
        raise ValueError(
            "token_ids must be one array (n, length): pad its rows to one length, with padding_mask 1 at real tokens. "
            f"Received rows of {len(x['token_ids'][0])} tokens and of other lengths."
        ) from None
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"without a tokenizer, x must hold token_ids, integers (n, length). Received: {ids.dtype} {ids.shape}."
        )
    mask = np.asarray(x.get("padding_mask", np.ones_like(ids))).astype(bool)
    segments = np.asarray(x.get("segment_ids", np.zeros_like(ids)))
    if mask.shape != ids.shape or segments.shape != ids.shape:
        raise ValueError(
            f"token_ids {ids.shape}, segment_ids {segments.shape}, padding_mask {mask.shape} must have one shape."
        )
    if (mask[:, 1:] > mask[:, :-1]).any():
        raise ValueError("padding_mask must be 1 at the front of each row and 0 after it.")
    if ids.size and not 0 <= ids.min() <= ids.max() < vocabulary_size:
        raise ValueError(
            f"token_ids must be from 0 to {vocabulary_size - 1}, the last that the model has. Received: values from "
            f"{ids.min()} to {ids.max()}."
        )
    return Encoded(ids[mask].astype("int32"), segments[mask].astype("int8"), lengths_to_row_splits(mask.sum(axis=1)))


def lengths_to_row_splits(lengths: np.ndarray) -> np.ndarray:
    """(n,) row lengths -> (n + 1,) int64 row splits."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _spread(flat: np.ndarray, index: np.ndarray, is_real: np.ndarray, fill: int) -> np.ndarray:
    out = np.full(index.shape + flat.shape[1:], fill, dtype=np.int32)
    out[is_real] = flat[index[is_real]]
    return out


class CheckedTexts(list):
    """A list whose items are known to be strings, so that they are not checked again."""


def to_text_list(texts: Any, name: str = "texts") -> CheckedTexts:
    """Strings as a list, from a string, list, tuple, NumPy array, pandas Series or other sequence of strings.

    Raises:
        TypeError: An item is no string (None, NaN, a number, a nested list); the message gives its index.
    """
    if isinstance(texts, CheckedTexts):
        return texts
    if isinstance(texts, np.ndarray) and texts.ndim > 1:
        raise TypeError(f"{name} must be a one-dimensional array of strings. Received: shape {texts.shape}.")
    values = texts.tolist() if hasattr(texts, "tolist") else texts  # of NumPy and pandas
    if isinstance(values, str):
        return CheckedTexts([values])
    if not isinstance(values, Sequence) or isinstance(values, (bytes, bytearray)):
        raise TypeError(
            f"{name} must be a string or a sequence of strings (list, tuple, NumPy array, pandas Series), "
            f"got {type(texts).__name__}: {texts!r:.60}."
        )
    for index, text in enumerate(values):
        if not isinstance(text, str):
            raise TypeError(_describe_wrong_item(text, index, name))
    return CheckedTexts(values)


def prepend_prompt(texts: CheckedTexts, prompt: str) -> CheckedTexts:
    """Texts with a prompt before each of them."""
    return CheckedTexts(prompt + text for text in texts) if prompt else texts


def to_text_lists(texts: Any, pairs: Any) -> tuple[CheckedTexts, CheckedTexts | None]:
    """Both columns as equally long lists of strings; `pairs` may be None.

    Raises:
        TypeError: An item is no string, or one column is a single string and the other a list.
        ValueError: The lengths differ.
    """
    firsts = to_text_list(texts)
    if pairs is None:
        return firsts, None
    if isinstance(texts, str) != isinstance(pairs, str):
        raise TypeError(
            f"texts and pairs must both be strings or both be lists of strings. Received: {type(texts).__name__} and "
            f"{type(pairs).__name__}; to set one string against many, repeat it: [text] * len(pairs)."
        )
    seconds = to_text_list(pairs, "pairs")
    if len(firsts) != len(seconds):
        raise ValueError(
            f"texts and pairs must be equally long. Received: {len(firsts)} texts and {len(seconds)} pairs."
        )
    return firsts, seconds


def check_unicode(texts: Sequence[str], name: str) -> None:
    """Refuses half of a surrogate pair, as the Rust library does, but names the text.

    Raises:
        ValueError: A text holds one.
    """
    for index, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name}[{index}] holds a lone surrogate {text[error.start]!r} at character {error.start} and is no "
                f"valid Unicode text; decode the source with errors='replace', or drop the character."
            ) from None


def _describe_wrong_item(item: Any, index: int, name: str) -> str:
    message = f"{name}[{index}] must be a string. Received: {type(item).__name__}: {item!r:.60}."
    if isinstance(item, (list, tuple)):
        return message + " For sentence pairs, pass the first column as `texts` and the second as `pairs`."
    if isinstance(item, bytes):
        return message + " Decode it first: value.decode('utf-8')."
    if item is None or type(item).__name__ == "NAType" or (isinstance(item, float) and item != item):
        return message + " Drop the missing rows, or fill them with an empty string."
    return message


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switches garbage collection off.

    Rust makes a hundred thousand objects without a step of Python in between, except for JAX's callback when Python
    collects garbage; Ctrl-C would be raised in that callback and lost.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
