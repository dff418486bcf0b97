"""Sparse vectors: of each text, the words of the vocabulary that have a weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bertzoo.metrics.vector_similarity import pairwise_similarity, similarity

ROWS_AT_ONCE = 256  # vectors that are dense at a time, 31 MB with 30,522 words


class SparseVector(NamedTuple):
    """One vector: ids int32 (words,), ascending, and their weights float32 (words,)."""

    ids: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class SparseVectors:
    """Sparse vectors (n, width) in compressed rows; `vectors[i]` is a `SparseVector`, and a slice or an array of rows
    gives `SparseVectors`.

    Args:
        row_splits: int64 (n + 1,): row i has the entries from `row_splits[i]` up to `row_splits[i + 1]`.
        ids: int32 (entries,), ascending in each row.
        weights: float32 (entries,).
        width: Numbers in a dense vector, the vocabulary's size.
    """

    row_splits: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    width: int

    @classmethod
    def from_dense(cls, vectors: Any) -> SparseVectors:
        """The numbers other than 0 of dense vectors (n, width)."""
        vectors = np.asarray(vectors, "float32")
        rows, ids = np.nonzero(vectors)
        splits = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(vectors)))]).astype("int64")
        return cls(splits, ids.astype("int32"), vectors[rows, ids], vectors.shape[1])

    @classmethod
    def concatenate(cls, parts: Sequence[SparseVectors], width: int) -> SparseVectors:
        """The vectors of several, in order; none, if there are no parts."""
        lengths = np.concatenate([np.diff(part.row_splits) for part in parts] or [np.zeros(0, "int64")])
        ids = np.concatenate([part.ids for part in parts] or [np.zeros(0, "int32")])
        weights = np.concatenate([part.weights for part in parts] or [np.zeros(0, "float32")])
        return cls(np.concatenate([[0], np.cumsum(lengths)]).astype("int64"), ids, weights, width)

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, (int, np.integer)):
            row = range(len(self))[rows]
            entries = slice(self.row_splits[row], self.row_splits[row + 1])
            return SparseVector(self.ids[entries], self.weights[entries])
        numbers = np.arange(len(self))[rows]
        lengths = np.diff(self.row_splits)[numbers]
        splits = np.concatenate([[0], np.cumsum(lengths)]).astype("int64")
        entries = np.arange(splits[-1]) + np.repeat(self.row_splits[numbers] - splits[:-1], lengths)
        return SparseVectors(splits, self.ids[entries], self.weights[entries], self.width)

    def __iter__(self) -> Iterator[SparseVector]:
        return (self[row] for row in range(len(self)))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, width)."""
        return len(self), self.width

    def to_dense(self) -> np.ndarray:
        """float32 (n, width)."""
        dense = np.zeros(self.shape, "float32")
        dense[np.repeat(np.arange(len(self)), np.diff(self.row_splits)), self.ids] = self.weights
        return dense

    def keep_largest(self, count: int) -> SparseVectors:
        """Of each vector the words of the largest weights, without those of weight 0.

        Args:
            count: How many words.
        """
        rows = np.repeat(np.arange(len(self)), np.diff(self.row_splits))
        by_weight = np.lexsort((-self.weights, rows))
        ranks = np.arange(len(rows)) - self.row_splits[rows]
        kept = np.sort(by_weight[(ranks < count) & (self.weights[by_weight] != 0)])
        splits = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=len(self)))]).astype("int64")
        return SparseVectors(splits, self.ids[kept], self.weights[kept], self.width)

    def sparsity(self) -> dict[str, float]:
        """`active_dims`, how many words a vector has on average, and `sparsity_ratio`, the part of the vocabulary that
        it lacks."""
        active = len(self.ids) / max(len(self), 1)
        return {"active_dims": active, "sparsity_ratio": 1 - active / self.width}

    def similarity(self, others: SparseVectors, measure: str = "dot") -> np.ndarray:
        """Each vector against each of the others, float32 (n, m).

        Args:
            others: As wide.
            measure: As for `bertzoo.metrics.vector_similarity.similarity`.

        Raises:
            ValueError: The widths differ, or the measure is unknown.
        """
        scores = np.zeros((len(self), len(others)), "float32")
        for i in range(0, len(self), ROWS_AT_ONCE):
            queries = self[i : i + ROWS_AT_ONCE].to_dense()
            for j in range(0, len(others), ROWS_AT_ONCE):
                part = others[j : j + ROWS_AT_ONCE].to_dense()
                scores[i : i + ROWS_AT_ONCE, j : j + ROWS_AT_ONCE] = similarity(queries, part, measure)
        return scores

    def pairwise_similarity(self, others: SparseVectors, measure: str = "dot") -> np.ndarray:
        """Each vector against the one at the same index of the others, float32 (n,).

        Args:
            others: Equally many, and as wide.
            measure: As for `bertzoo.metrics.vector_similarity.similarity`.

        Raises:
            ValueError: They are not equally many or wide, or the measure is unknown.
        """
        count = max(len(self), len(others))
        parts = [slice(i, i + ROWS_AT_ONCE) for i in range(0, count, ROWS_AT_ONCE)]
        scores = [pairwise_similarity(self[part].to_dense(), others[part].to_dense(), measure) for part in parts]
        return np.concatenate([np.zeros(0, "float32"), *scores])
