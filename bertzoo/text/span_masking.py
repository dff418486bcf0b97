"""Which words and n-grams to mask, for a whole batch at once (Joshi et al. 2020; Lan et al. 2020, section 4.1)."""

import string
from dataclasses import dataclass

import numpy as np

from bertzoo.text.tokenizer import Tokenizer

SENTENCE_PIECE, BYTE_LEVEL = "▁", "Ġ"


@dataclass(frozen=True)
class SpanSampler:
    """Samples whole words, or n-grams of them with n drawn in the proportion 1 : 1/2 : 1/3.

    As in ALBERT's code, the words of a row are tried in random order as the first word of an n-gram. An n-gram that
    exceeds the row's budget is shortened; one that overlaps an earlier n-gram is skipped. ALBERT's code then draws n
    again, so that long n-grams, which overlap more often, become rare; here n is kept until an n-gram fits. An n-gram
    never spans a special token.

    Args:
        starts: bool (vocabulary,), the tokens that begin a word.
        max_ngram: The largest n.
    """

    starts: np.ndarray
    max_ngram: int = 1

    def choose(self, ids: np.ndarray, is_candidate: np.ndarray, budgets: np.ndarray, rng) -> np.ndarray:
        """
        Args:
            ids: int (rows, length).
            is_candidate: bool (rows, length), the tokens that may be masked.
            budgets: int (rows,), tokens to choose in each row; fewer are chosen if no word fits the rest.
            rng: The random generator.

        Returns:
            int (rows, length): 0 for tokens that are not chosen, else the number of their n-gram, from 1.
        """
        before = np.concatenate([np.zeros((len(ids), 1), bool), is_candidate[:, :-1]], axis=1)
        begins = is_candidate & (self.starts[ids] | ~before)
        ends = self._ends(begins, is_candidate)
        order = np.argsort(np.where(begins, rng.random(ids.shape, dtype=np.float32), 2.0), axis=1)
        law = np.cumsum(1 / np.arange(1, self.max_ngram + 1))
        sizes = 1 + np.searchsorted(law / law[-1], rng.random((len(ids), int(budgets.max(initial=0)) + 1)))
        return self._place(order, begins, ends, sizes, budgets)

    def _ends(self, begins, is_candidate) -> np.ndarray:
        """(max_ngram, rows, length): where n-grams of 1, 2 … words that begin at a place end; length + 1 for none."""
        rows, length = begins.shape
        bounds = np.where(begins | ~is_candidate, np.arange(length), length)
        following = np.minimum.accumulate(bounds[:, ::-1], axis=1)[:, ::-1]
        # Columns length and length + 1: the row's end, from which no n-gram goes on.
        first = np.full((rows, length + 2), length + 1)
        first[:, : length - 1], first[:, length - 1] = following[:, 1:], length
        first[:, :length][~is_candidate] = length + 1
        ends = [first]
        for _ in range(1, self.max_ngram):
            ends.append(np.take_along_axis(first, ends[-1], axis=1))
        return np.stack(ends)

    def _place(self, order, begins, ends, sizes, budgets) -> np.ndarray:
        rows, length = begins.shape
        every, count, left = np.arange(rows), np.zeros(rows, int), budgets.astype(int).copy()
        taken = np.zeros((rows, length + 2), bool)
        number, closes = np.zeros((rows, length + 2), int), np.zeros((rows, length + 2), int)
        for column in range(int(begins.sum(axis=1).max(initial=0))):
            active = np.flatnonzero((left > 0) & begins[every, order[:, column]])
            if not len(active) and not (left > 0).any():
                break
            place, n = order[active, column], sizes[active, count[active]]
            reach = ends[:, active, place]
            there = reach[n - 1, np.arange(len(active))] <= length
            fitting = ((reach - place <= left[active]) & (np.arange(1, self.max_ngram + 1)[:, None] <= n)).sum(axis=0)
            free = ~taken[active, place]
            for k in range(1, self.max_ngram):
                free &= (fitting <= k) | ~taken[active, np.minimum(reach[k - 1], length + 1)]
            good = there & (fitting > 0) & free
            active, place, fitting, reach = active[good], place[good], fitting[good], reach[:, good]
            end = reach[fitting - 1, np.arange(len(active))]
            taken[active, place] = True
            for k in range(1, self.max_ngram):
                more = fitting > k
                taken[active[more], reach[k - 1, more]] = True
            left[active] -= end - place
            count[active] += 1
            number[active, place] = count[active]
            closes[active, end] = count[active]
        # An n-gram's number holds from its first token up to its end.
        return np.cumsum(number - closes, axis=1)[:, :length]


def word_starts(tokenizer: Tokenizer) -> np.ndarray:
    """bool (vocabulary,): whether a token begins a word.

    WordPiece: all but those that begin with ##. Byte-level BPE: those that begin with a space, as in fairseq.
    SentencePiece: those that begin with ▁ and, as in ALBERT's code, punctuation and pieces with letters outside a to z.
    Special tokens count as words.

    Raises:
        ValueError: No token of the vocabulary marks the beginning of a word.
    """
    tokens = np.array([_token(tokenizer, i) for i in range(tokenizer.vocabulary_size)], dtype=object)
    special = np.isin(np.arange(len(tokens)), tokenizer.special_ids)
    marks = {mark: sum(token.startswith(mark) for token in tokens) for mark in ("##", BYTE_LEVEL, SENTENCE_PIECE)}
    mark = max(marks, key=marks.__getitem__)
    if not marks[mark]:
        raise ValueError(f"whole-word masking expects tokens that begin with {', '.join(marks)}. Received: none do.")
    begins = np.array([token.startswith(mark) for token in tokens])
    if mark == "##":
        return special | ~begins | (tokens == "##")
    if mark == BYTE_LEVEL:
        return special | begins
    english = set(string.ascii_letters)
    return special | begins | np.array([not set(token) <= english for token in tokens])


def _token(tokenizer: Tokenizer, index: int) -> str:
    try:
        return tokenizer.id_to_token(index)
    except ValueError:  # a gap in the ids
        return ""
