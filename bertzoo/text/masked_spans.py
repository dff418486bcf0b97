"""Words and n-grams to mask, for all rows of a batch at once (Joshi et al. 2020; Lan et al. 2020, section 4.1)."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spans:
    """Chooses whole words, or n-grams of them with n drawn in the proportion 1 : 1/2 : 1/3.

    As ALBERT's code does, the words of a row are tried in random order as the first of an n-gram. One that would exceed
    the row's budget is tried with fewer words; one that overlaps with what is chosen is passed over. Its code then
    draws n anew, so that long n-grams, which overlap more often, become rare; here n stays until it has found its
    place. An n-gram never reaches over a special token.

    starts: bool (vocabulary,), the tokens that begin a word. max_ngram: the largest n.
    """

    starts: np.ndarray
    max_ngram: int = 1

    def choose(self, ids: np.ndarray, candidate: np.ndarray, wanted: np.ndarray, rng) -> np.ndarray:
        """
        Args:
            ids: int (rows, length).
            candidate: bool (rows, length), where there may be masks.
            wanted: int (rows,), tokens to choose in each row; fewer are chosen where no word fits into what is left.
            rng: Source of the draws.

        Returns:
            int (rows, length): 0 where nothing is chosen, else the number of the n-gram, from 1.
        """
        before = np.concatenate([np.zeros((len(ids), 1), bool), candidate[:, :-1]], axis=1)
        begins = candidate & (self.starts[ids] | ~before)
        ends = self._ends(begins, candidate)
        order = np.argsort(np.where(begins, rng.random(ids.shape, dtype=np.float32), 2.0), axis=1)
        law = np.cumsum(1 / np.arange(1, self.max_ngram + 1))
        sizes = 1 + np.searchsorted(law / law[-1], rng.random((len(ids), int(wanted.max(initial=0)) + 1)))
        return self._place(order, begins, ends, sizes, wanted)

    def _ends(self, begins, candidate) -> np.ndarray:
        """(max_ngram, rows, length): where n-grams of 1, 2 … words that begin at a place end; length + 1 for none."""
        rows, length = begins.shape
        bounds = np.where(begins | ~candidate, np.arange(length), length)
        following = np.minimum.accumulate(bounds[:, ::-1], axis=1)[:, ::-1]
        # Columns length and length + 1: the row's end, from which no n-gram goes on.
        first = np.full((rows, length + 2), length + 1)
        first[:, : length - 1], first[:, length - 1] = following[:, 1:], length
        first[:, :length][~candidate] = length + 1
        ends = [first]
        for _ in range(1, self.max_ngram):
            ends.append(np.take_along_axis(first, ends[-1], axis=1))
        return np.stack(ends)

    def _place(self, order, begins, ends, sizes, wanted) -> np.ndarray:
        rows, length = begins.shape
        every, count, left = np.arange(rows), np.zeros(rows, int), wanted.astype(int).copy()
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
