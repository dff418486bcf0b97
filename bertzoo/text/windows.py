"""Texts of any length as overlapping rows that fit a model (Devlin et al. 2019's SQuAD code)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertzoo.text.encoded import Encoded, lengths_to_row_splits
from bertzoo.text.tokenizer import Tokenizer

MOST_OVERLAP = 128
SQUAD_STEP = 128


@dataclass(frozen=True)
class Windows:
    """`n` rows cut from texts.

    rows: the token rows, special tokens included, without offsets.
    pieces: the texts' own tokens, one row for each text, without special tokens and truncation, with offsets.
    source: (n,) the text that a row is cut from.
    column: (n,) the position in the row where its piece of the text begins.
    begin, end: (n,) the range of the text's tokens in the row.
    own_begin, own_end: (n,) the range of tokens for which the row has the most context on both sides; these ranges
    partition the text.
    """

    rows: Encoded
    pieces: Encoded
    source: np.ndarray
    column: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    own_begin: np.ndarray
    own_end: np.ndarray

    def text_offsets(self, text_index: int) -> np.ndarray:
        """(tokens, 2): the characters of a text's tokens."""
        assert self.pieces.offsets is not None  # as the class says
        return self.pieces.offsets[self.pieces.row_splits[text_index] : self.pieces.row_splits[text_index + 1]]

    def _own_columns(self, window: int) -> slice:
        """Where a row holds the tokens that are its own."""
        shift = int(self.column[window] - self.begin[window])
        return slice(int(self.own_begin[window]) + shift, int(self.own_end[window]) + shift)

    def join_outputs(self, window_outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Joins a model's outputs for the rows, (length, …) each, to one array for each text, (tokens, …)."""
        joined: list[list[np.ndarray]] = [[] for _ in range(len(self.pieces))]
        for window, source in enumerate(self.source):
            joined[source].append(window_outputs[window][self._own_columns(window)])
        return [np.concatenate(arrays) for arrays in joined]

    def to_window_tokens(self, token_values: np.ndarray, fill: int) -> np.ndarray:
        """One int32 a token of the texts, end to end -> one a token of the rows, `fill` where a token is not the
        row's own."""
        out = np.full(len(self.rows.token_ids), fill, dtype=np.int32)
        for window, source in enumerate(self.source):
            columns, at = self._own_columns(window), self.rows.row_splits[window]
            first = self.pieces.row_splits[source]
            own = token_values[first + self.own_begin[window] : first + self.own_end[window]]
            out[at + columns.start : at + columns.stop] = own
        return out


def cut_windows(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    questions: Sequence[str] | None = None,
    *,
    stride: int | None = None,
    max_query_length: int = 64,
) -> Windows:
    """Cuts texts into rows of at most the tokenizer's `max_length` tokens.

    Args:
        tokenizer: A `Tokenizer`.
        texts: The texts to cut.
        questions: Put before every row of its text, as the first of a pair; cut to `max_query_length` tokens.
        stride: How many tokens of text two neighbouring rows share. Where None, a quarter of a row and at most 128;
            with questions, as many as let rows start 128 tokens apart (Devlin et al. 2019's code for SQuAD).
        max_query_length: Longest question in tokens.

    Raises:
        ValueError: A question leaves no room for text, or `stride` leaves no room for new text.
    """
    if stride is not None and stride < 0:
        raise ValueError(f"stride is the overlap of two rows, at least 0 tokens. Received: stride={stride}.")
    pieces, no_question = _without_specials(tokenizer, texts), np.zeros(0, np.int32)
    asked = None if questions is None else _without_specials(tokenizer, questions)
    specials, segments = find_template(tokenizer, pairs=questions is not None)
    ids: list[np.ndarray] = []
    kinds: list[np.ndarray] = []
    table, lengths = [], []
    for text in range(len(pieces)):
        tokens = pieces.row(text)
        question = no_question if asked is None else asked.row(text)[:max_query_length]
        taken = sum(map(len, specials)) + len(question)
        room = max(len(tokens), 1) if tokenizer.max_length is None else tokenizer.max_length - taken
        if room < 1:
            raise ValueError(
                f"the longest row is {tokenizer.max_length} tokens, and the question with the special tokens takes "
                f"{taken}: raise max_length, or lower the limit of the question."
            )
        if stride is not None:
            overlap = stride
        else:
            overlap = min(MOST_OVERLAP, room // 4) if asked is None else max(0, room - SQUAD_STEP)
        for begin, end, own_begin, own_end in _cuts(len(tokens), room, overlap):
            table.append((text, taken - len(specials[2]), begin, end, own_begin, own_end))
            ids += [specials[0], question, specials[1], tokens[begin:end], specials[2]]
            first, second = np.full(len(question), segments[1]), np.full(end - begin, segments[3])
            kinds += [segments[0], first, segments[2], second, segments[4]]
            lengths.append(taken + end - begin)
    rows = Encoded(_joined(ids, np.int32), _joined(kinds, np.int8), lengths_to_row_splits(np.array(lengths, np.int64)))
    columns = np.array(table, dtype=np.int64).reshape(-1, 6).T
    return Windows(rows, pieces, *columns)


def encode_without_truncation(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    """Rows of all tokens of texts: one a text, and of those that are too long several, side by side without overlap."""
    limit = tokenizer.max_length
    encoded = tokenizer.encode(texts, truncate=False)
    long = [] if limit is None else np.flatnonzero(encoded.lengths > limit).tolist()
    chunks, begin = [], 0
    for text in long:
        chunks += [encoded.slice_rows(begin, text), cut_windows(tokenizer, [texts[text]], stride=0).rows]
        begin = text + 1
    return Encoded.concatenate([*chunks, encoded.slice_rows(begin, len(encoded))]) if long else encoded


def _joined(arrays: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)


def cut_words(tokens_of_words: np.ndarray, max_tokens: int, max_words: int) -> list[tuple[int, int, int, int]]:
    """Cuts a text between words into overlapping windows: (begin, end, own begin, own end) of each, in words.

    Neighbours share a quarter of a window's tokens, and at most `MOST_OVERLAP`; the middle is the border of what is
    whose.

    Args:
        tokens_of_words: int (words,), the tokens of each word.
        max_tokens, max_words: The most that a window holds. A word of more tokens is a window alone.
    """
    starts = lengths_to_row_splits(tokens_of_words)
    count, overlap = len(tokens_of_words), min(MOST_OVERLAP, max_tokens // 4)
    begins, ends = [0], []
    while True:
        fits = int(np.searchsorted(starts, starts[begins[-1]] + max_tokens, side="right")) - 1
        ends.append(min(max(fits, begins[-1] + 1), begins[-1] + max_words, count))
        if ends[-1] >= count:
            break
        shared = int(np.searchsorted(starts, starts[ends[-1]] - overlap))
        least_shared = ends[-1] - max_words // 4
        begins.append(min(max(shared, least_shared, begins[-1] + 1), ends[-1]))
    borders = [0, *((end + begin) // 2 for end, begin in zip(ends, begins[1:])), count]
    return list(zip(begins, ends, borders, borders[1:]))


def _cuts(length: int, room: int, stride: int) -> list[tuple[int, int, int, int]]:
    """(begin, end, own begin, own end) of each row. Where two overlap, the middle is the border of what is whose."""
    if length > room <= stride:
        raise ValueError(f"stride must be less than the {room} tokens of text in a row. Received: stride={stride}.")
    begins = [0]
    while begins[-1] + room < length:
        begins.append(begins[-1] + room - stride)
    ends = [min(begin + room, length) for begin in begins]
    borders = [0, *((end + begin) // 2 for end, begin in zip(ends, begins[1:])), length]
    return list(zip(begins, ends, borders, borders[1:]))


def _without_specials(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    whole = tokenizer.encode(texts, return_offsets=True, truncate=False)
    assert whole.offsets is not None and whole.word_ids is not None  # because return_offsets=True
    before, _, after = map(len, find_template(tokenizer, pairs=False)[0])
    keep = np.ones(len(whole.token_ids), dtype=bool)
    for i in range(before):
        keep[whole.row_splits[:-1] + i] = False
    for i in range(after):
        keep[whole.row_splits[1:] - 1 - i] = False
    splits = lengths_to_row_splits(whole.lengths - before - after)
    return Encoded(whole.token_ids[keep], whole.segment_ids[keep], splits, whole.offsets[keep], whole.word_ids[keep])


def find_template(tokenizer: Tokenizer, pairs: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The special tokens before, between and after two texts, none between where there is one; and the segments of a
    row's five parts: before, the first text, between, the second or only text, after."""
    row = tokenizer.encode(["a"], ["a"] if pairs else None, return_offsets=True, truncate=False)
    assert row.word_ids is not None  # because return_offsets=True
    is_special = row.word_ids == -1
    group = np.cumsum(np.diff(is_special.astype(int), prepend=1) < 0)  # counts the texts begun
    masks = [is_special & (group == i) for i in range(2 + pairs)]
    if not pairs:
        masks.insert(1, np.zeros_like(is_special))
    texts = row.segment_ids[~is_special]
    before, between, after = (row.segment_ids[mask] for mask in masks)
    return [row.token_ids[mask] for mask in masks], [before, texts[:1], between, texts[-1:], after]
