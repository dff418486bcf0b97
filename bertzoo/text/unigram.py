"""Learns the pieces of a unigram language model (Kudo 2018, section 3.2), the same from the same words.

The Rust library's trainer goes through the words in the order of a randomly seeded hash map, on which its first
candidates, and so its pieces and scores, depend.
"""

import math
from array import array
from collections import Counter
from collections.abc import Mapping

import numpy as np

LONGEST_PIECE = 16
# As SentencePiece's trainer: candidates for each wanted piece, and the share that each pruning leaves.
_CANDIDATES, _KEPT, _ROUNDS = 10, 0.75, 2


def learn_unigram(words: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """At most `size` pieces with their log-probabilities, the likeliest first.

    `words` are counted. Candidates are the substrings of the words that are seen most; expectation maximisation gives
    their probabilities, and those without which the words lose least are dropped, until `size` are left. Single
    characters stay, the most frequent ones if there are too many for half of the room.
    """
    words = _without_rare_characters(words, size // 2)
    pieces, counts, lattice = _candidates(words, size * _CANDIDATES)
    scores = np.log(counts / counts.sum())
    single = np.array([len(piece) == 1 for piece in pieces])
    while True:
        for _ in range(_ROUNDS):
            expected = lattice.expected_counts(scores)
            kept = single | (expected >= 0.5)
            pieces, expected, single = _filtered(pieces, kept), expected[kept], single[kept]
            scores = _log_probabilities(expected)
            lattice.keep(kept)
        if len(pieces) <= size:
            break
        losses = np.where(single, np.inf, expected * (scores - _alternatives(pieces, scores)))
        wanted = max(size, int(len(pieces) * _KEPT))
        kept = np.zeros(len(pieces), bool)
        kept[np.argsort(-losses, kind="stable")[:wanted]] = True
        pieces, scores, single = _filtered(pieces, kept), scores[kept], single[kept]
        lattice.keep(kept)
    return sorted(zip(pieces, (round(float(score), 6) for score in scores)), key=lambda pair: (-pair[1], pair[0]))


def _without_rare_characters(words: Mapping[str, int], room: int) -> dict[str, int]:
    """The words cut where they have a character that does not find room."""
    seen = Counter()
    for word, count in words.items():
        for character in word:
            seen[character] += count
    kept = set(sorted(seen, key=lambda c: (-seen[c], c))[:room])
    parts = Counter()
    for word, count in words.items():
        for part in "".join(c if c in kept else "\0" for c in word).split("\0"):
            if part:
                parts[part] += count
    return dict(sorted(parts.items()))


def _candidates(words: Mapping[str, int], limit: int):
    """(pieces, their counts, the lattice of all words over them): characters, then substrings by count × length."""
    seen = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + LONGEST_PIECE) + 1):
                seen[word[start:end]] += count
    longer = [piece for piece, count in seen.items() if len(piece) > 1 and count > 1]
    longer.sort(key=lambda piece: (-seen[piece] * len(piece), piece))
    pieces = sorted(piece for piece in seen if len(piece) == 1) + longer[:limit]
    return pieces, np.array([seen[piece] for piece in pieces], float), _Lattice(words, pieces)


class _Lattice:
    """Every way to cut the words into pieces. Nodes are the places between characters, edges are pieces."""

    def __init__(self, words: Mapping[str, int], pieces: list[str]):
        ids = {piece: index for index, piece in enumerate(pieces)}
        edges, columns, first = array("q"), array("q"), 0
        for word in words:
            for start in range(len(word)):
                for end in range(start + 1, min(len(word), start + LONGEST_PIECE) + 1):
                    piece = ids.get(word[start:end])
                    if piece is not None:
                        edges.extend((piece, first + start, first + end))
                        columns.extend((start, end))
            first += len(word) + 1
        self._edges = np.array(edges, np.int64).reshape(-1, 3)
        self._columns = np.array(columns, np.int64).reshape(-1, 2)
        lengths = np.array([len(word) for word in words])
        self._lasts = np.cumsum(lengths + 1) - 1
        self._firsts = self._lasts - lengths
        self._word_of = np.repeat(np.arange(len(words)), lengths + 1)
        self._counts = np.array(list(words.values()), float)

    def keep(self, kept: np.ndarray) -> None:
        """Drops the edges of pieces that are not kept, and numbers the others anew."""
        alive = kept[self._edges[:, 0]]
        self._edges, self._columns = self._edges[alive], self._columns[alive]
        self._edges[:, 0] = (np.cumsum(kept) - 1)[self._edges[:, 0]]

    def expected_counts(self, scores: np.ndarray) -> np.ndarray:
        """How often each piece is used, over all ways to cut weighted by their probability."""
        piece, start, end = self._edges.T
        forward = self._sums(self._firsts, start, end, self._columns[:, 1], scores[piece])
        backward = self._sums(self._lasts, end, start, -self._columns[:, 0], scores[piece])
        word = self._word_of[start]
        share = forward[start] + scores[piece] + backward[end] - forward[self._lasts[word]]
        return np.bincount(piece, self._counts[word] * np.exp(share), len(scores))

    def _sums(self, begin, source, target, step, score) -> np.ndarray:
        """The log of the summed probability of all ways from `begin` to each node; `step` orders the edges."""
        sums = np.full(len(self._word_of), -np.inf)
        sums[begin] = 0.0
        order = np.lexsort((target, step))
        bounds = np.flatnonzero(np.diff(step[order])) + 1
        for edges in np.split(order, bounds):
            heads = np.flatnonzero(np.diff(target[edges], prepend=-1))
            sums[target[edges[heads]]] = np.logaddexp.reduceat(sums[source[edges]] + score[edges], heads)
        return sums


def _alternatives(pieces: list[str], scores: np.ndarray) -> np.ndarray:
    """The score of the best way to spell each piece with others."""
    known = dict(zip(pieces, scores.tolist()))
    out = np.zeros(len(pieces))
    for index, piece in enumerate(pieces):
        if len(piece) == 1:
            continue
        best = [0.0] + [-math.inf] * len(piece)
        for end in range(1, len(piece) + 1):
            for start in range(end):
                score = known.get(piece[start:end])
                if score is not None and end - start < len(piece):
                    best[end] = max(best[end], best[start] + score)
        out[index] = best[-1]
    return out


def _log_probabilities(expected: np.ndarray) -> np.ndarray:
    # The digamma function in place of the logarithm favours few pieces (a Dirichlet prior; as SentencePiece does).
    return _digamma(np.maximum(expected, 1e-3)) - _digamma(np.array([expected.sum()]))


def _digamma(x: np.ndarray) -> np.ndarray:
    """By recurrence up to 7 and the asymptotic series from there."""
    shift = np.zeros_like(x)
    for _ in range(7):
        small = x < 7
        shift -= np.where(small, 1 / x, 0.0)
        x = np.where(small, x + 1, x)
    inverse = 1 / x**2
    return shift + np.log(x) - 0.5 / x - inverse * (1 / 12 - inverse * (1 / 120 - inverse / 252))


def _filtered(pieces: list[str], kept: np.ndarray) -> list[str]:
    return [piece for piece, stays in zip(pieces, kept) if stays]
