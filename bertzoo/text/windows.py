"""Texts of any length as overlapping rows that fit a model (Devlin et al. 2019's SQuAD code)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertzoo.text.encoded import Encoded, row_splits_from
from bertzoo.text.tokenizer import Tokenizer

MOST_OVERLAP = 128
SQUAD_STEP = 128


@dataclass(frozen=True)
class Windows:
    """`n` rows cut from texts.

    rows: the token rows, special tokens included, without offsets.
    pieces: the texts' own tokens, one row for each text, without special tokens and truncation, with offsets.
    source: (n,) the text that a row is cut from.
    column: (n,) where in the row its piece of text begins.
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

    def offsets(self, text: int) -> np.ndarray:
        """(tokens, 2): the characters of a text's tokens."""
        assert self.pieces.offsets is not None  # as the class says
        return self.pieces.offsets[self.pieces.row_splits[text] : self.pieces.row_splits[text + 1]]

    def own_columns(self, window: int) -> slice:
        """Where a row holds the tokens that are its own."""
        shift = int(self.column[window] - self.begin[window])
        return slice(int(self.own_begin[window]) + shift, int(self.own_end[window]) + shift)

    def join(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Joins a model's outputs for the rows, (length, …) each, to one array for each text, (tokens, …)."""
        parts: list[list[np.ndarray]] = [[] for _ in range(len(self.pieces))]
        for window, source in enumerate(self.source):
            parts[source].append(outputs[window][self.own_columns(window)])
        return [np.concatenate(part) for part in parts]

    def spread(self, values: np.ndarray, fill: int) -> np.ndarray:
        """One int32 a token of the texts, end to end -> one a token of the rows, `fill` where a token is not the
        row's own."""
        out = np.full(len(self.rows.token_ids), fill, dtype=np.int32)
        for window, source in enumerate(self.source):
            columns, at = self.own_columns(window), self.rows.row_splits[window]
            first = self.pieces.row_splits[source]
            own = values[first + self.own_begin[window] : first + self.own_end[window]]
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
            with questions, so many that rows start 128 tokens apart (Devlin et al. 2019's code for SQuAD).
        max_query_length: Longest question in tokens.

    Raises:
        ValueError: A question leaves no room for text, or `stride` leaves no room for new text.
    """
    if stride is not None and stride < 0:
        raise ValueError(f"stride is the overlap of two rows, at least 0 tokens. Received: stride={stride}.")
    frame = _Frame(tokenizer, pairs=questions is not None)
    pieces = _without_specials(tokenizer, texts)
    if questions is None:
        asked = [np.zeros(0, np.int32)] * len(pieces)
    else:
        found = _without_specials(tokenizer, questions)
        asked = [found.row(i)[:max_query_length] for i in range(len(found))]
    step = None if questions is None else SQUAD_STEP
    ids, kinds, table = [], [], []
    for text, question in enumerate(asked):
        tokens = pieces.row(text)
        room = frame.room(tokenizer.max_length, len(question), len(tokens))
        column = len(frame.before) + len(question) + len(frame.between)
        for begin, end, own_begin, own_end in _cuts(len(tokens), room, stride, step):
            table.append((text, column, begin, end, own_begin, own_end))
            row = frame.row(question, tokens[begin:end])
            ids.append(row[0])
            kinds.append(row[1])
    lengths = np.array([len(row) for row in ids], dtype=np.int64)
    rows = Encoded(_joined(ids, np.int32), _joined(kinds, np.int8), row_splits_from(lengths))
    columns = np.array(table, dtype=np.int64).reshape(-1, 6).T
    return Windows(rows, pieces, *columns)


def whole_rows(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    """Rows of all tokens of texts: one a text, and of those that are too long several, side by side without overlap."""
    limit = tokenizer.max_length
    encoded = tokenizer.encode(texts, truncate=False)
    long = [] if limit is None else np.flatnonzero(encoded.lengths > limit).tolist()
    parts, begin = [], 0
    for text in long:
        parts += [encoded.rows(begin, text), cut_windows(tokenizer, [texts[text]], stride=0).rows]
        begin = text + 1
    return Encoded.concatenate([*parts, encoded.rows(begin, len(encoded))]) if long else encoded


def _joined(parts: list[np.ndarray], dtype) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _cuts(length: int, room: int, stride: int | None, step: int | None) -> list[tuple[int, int, int, int]]:
    """(begin, end, own begin, own end) of each row. Where two overlap, the middle is the border of what is whose."""
    if stride is None:
        stride = min(MOST_OVERLAP, room // 4) if step is None else max(0, room - step)
    if length > room <= stride:
        raise ValueError(f"stride must be less than the {room} tokens of text in a row. Received: stride={stride}.")
    step = room - stride
    begins = [0]
    while begins[-1] + room < length:
        begins.append(begins[-1] + step)
    ends = [min(begin + room, length) for begin in begins]
    borders = [0, *((end + begin) // 2 for end, begin in zip(ends, begins[1:])), length]
    return list(zip(begins, ends, borders, borders[1:]))


def _without_specials(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    whole = tokenizer.encode(texts, offsets=True, truncate=False)
    assert whole.offsets is not None and whole.word_ids is not None  # because offsets=True
    before, after = _specials(tokenizer, pairs=False)
    keep = np.ones(len(whole.token_ids), dtype=bool)
    for i in range(len(before)):
        keep[whole.row_splits[:-1] + i] = False
    for i in range(len(after)):
        keep[whole.row_splits[1:] - 1 - i] = False
    lengths = whole.lengths - len(before) - len(after)
    return Encoded(
        whole.token_ids[keep],
        whole.segment_ids[keep],
        row_splits_from(lengths),
        whole.offsets[keep],
        whole.word_ids[keep],
    )


def _probe(tokenizer: Tokenizer, pairs: bool) -> tuple[Encoded, np.ndarray]:
    """The row of a short text or pair, and which of its tokens are special."""
    row = tokenizer.encode(["a"], ["a"] if pairs else None, offsets=True, truncate=False)
    assert row.word_ids is not None  # because offsets=True
    return row, row.word_ids == -1


def _specials(tokenizer: Tokenizer, pairs: bool) -> list[np.ndarray]:
    """Ids of the special tokens before, between and after two texts; before and after where there is one."""
    probe, special = _probe(tokenizer, pairs)
    group = np.cumsum(np.diff(special.astype(int), prepend=1) < 0)  # counts the texts begun
    return [probe.token_ids[special & (group == i)] for i in range(2 + pairs)]


class _Frame:
    """What surrounds the text in every row."""

    def __init__(self, tokenizer: Tokenizer, pairs: bool):
        self.before, *between, self.after = _specials(tokenizer, pairs)
        self.between = between[0] if pairs else self.before[:0]
        probe, special = _probe(tokenizer, pairs)
        kinds, inside = probe.segment_ids, np.flatnonzero(~special)
        self.first_kind, self.kind = kinds[inside[0]], kinds[inside[-1]]
        self.kinds = kinds[special]

    def room(self, limit: int | None, question: int, length: int) -> int:
        """Tokens of text that fit in a row."""
        taken = len(self.before) + question + len(self.between) + len(self.after)
        room = max(length, 1) if limit is None else limit - taken
        if room < 1:
            raise ValueError(
                f"the longest row is {limit} tokens, and the question with the special tokens takes {taken}: "
                "raise max_length, or lower the limit of the question."
            )
        return room

    def row(self, question: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids = np.concatenate([self.before, question, self.between, tokens, self.after])
        a, b = len(self.before), len(self.before) + len(self.between)
        kinds = np.concatenate(
            [
                self.kinds[:a],
                np.full(len(question), self.first_kind),
                self.kinds[a:b],
                np.full(len(tokens), self.kind),
                self.kinds[b:],
            ]
        )
        return ids.astype(np.int32), kinds.astype(np.int8)
