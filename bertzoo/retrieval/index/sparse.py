"""Sparse vectors: a few weighted terms of a vocabulary for each document, as SPLADE and BM25 give them.

A segment holds postings: for each term the documents that have it, and their weights. A query adds up the postings of
its terms, term by term.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bertzoo.retrieval.index.field import Field, Found, Options, Part, best_of, check_fits_float16


class Terms(NamedTuple):
    """The terms of a document or query: ids int32 (n,), each once, and weights float32 (n,)."""

    ids: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Sparse(Field):
    """Weighted terms for each document; the score is the dot product.

    Args:
        precision: Of stored weights, "float32" or "float16".

    Documents and queries are sequences of (ids, weights), ids int (n,), each once, weights float (n,).

    Raises:
        ValueError: The precision is another.
    """

    kind: ClassVar[str] = "sparse"
    precision: str = "float16"

    def __post_init__(self) -> None:
        if self.precision not in ("float16", "float32"):
            raise ValueError(f'precision must be "float16" or "float32". Received: {self.precision!r}.')

    def check(self, values: Any, count: int) -> list[Terms]:
        documents = self.check_queries(values)
        if len(documents) != count:
            raise ValueError(f"values must be the terms of {count} documents. Received: {len(documents)}.")
        if self.precision == "float16":
            for _, weights in documents:
                check_fits_float16(weights, 'use precision="float32"')
        return documents

    def check_queries(self, queries: Any) -> list[Terms]:
        checked = [Terms(_to_ids(ids), np.asarray(weights, np.float32)) for ids, weights in queries]
        for ids, weights in checked:
            if ids.ndim != 1 or ids.shape != weights.shape or len(np.unique(ids)) < len(ids):
                raise ValueError(
                    f"terms must be (ids, weights) of equal length, each id once. Received: {ids.shape} and "
                    f"{weights.shape}{', an id more than once' if len(np.unique(ids)) < len(ids) else ''}."
                )
            if not np.isfinite(weights).all():
                raise ValueError(f"weights must be finite. Received: {weights[~np.isfinite(weights)][0]}.")
        return checked

    def write(self, folder: Path, name: str, values: list[Terms]) -> None:
        rows = np.repeat(np.arange(len(values), dtype=np.int32), [len(terms.ids) for terms in values])
        ids = np.concatenate([np.zeros(0, np.int32), *(terms.ids for terms in values)])
        weights = np.concatenate([np.zeros(0, np.float32), *(terms.weights for terms in values)])
        self._write_postings(folder, name, ids, rows, weights)

    def _write_postings(self, folder: Path, name: str, ids: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> None:
        order = np.argsort(ids, kind="stable")  # rows ascend, so that they do for each term
        terms, begins = np.unique(ids[order], return_index=True)
        np.save(folder / f"{name}.terms.npy", terms)
        np.save(folder / f"{name}.splits.npy", np.append(begins, len(ids)).astype(np.int64))
        np.save(folder / f"{name}.rows.npy", rows[order])
        np.save(folder / f"{name}.weights.npy", weights[order].astype(self.precision))

    def open(self, folder: Path, name: str) -> "SparsePart":
        return SparsePart(folder, name)

    def merge(self, folder: Path, name: str, parts: Sequence[tuple["SparsePart", np.ndarray]]) -> None:
        columns, begin = [], 0
        for part, rows in parts:
            ids, old, weights = part.postings()
            # The new row of each old one that stays.
            new = np.full(int(max(old.max(initial=-1), rows.max(initial=-1))) + 1, -1, np.int32)
            new[rows] = np.arange(begin, begin + len(rows))
            stays = new[old] >= 0
            columns.append((ids[stays], new[old][stays], weights[stays]))
            begin += len(rows)
        self._write_postings(folder, name, *map(np.concatenate, zip(*columns)))


class SparsePart(Part):
    """The postings of a segment, memory-mapped.

    Args:
        folder: The segment's folder.
        name: The field's name.
    """

    def __init__(self, folder: Path, name: str):
        self._terms, self._splits, self._rows, self._weights = (
            np.load(folder / f"{name}.{part}.npy", mmap_mode="r") for part in ("terms", "splits", "rows", "weights")
        )

    def postings(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All postings, by term: ids int32, rows int32 and weights float32, each (postings,)."""
        ids = np.repeat(self._terms, np.diff(self._splits))
        return ids, np.asarray(self._rows), self._weights.astype(np.float32)

    def document_frequencies(self, ids: np.ndarray) -> np.ndarray:
        """How many documents have each term, int64 (n,)."""
        begins, ends = self._slices(ids)
        return ends - begins

    def search(self, queries: Sequence[Terms], alive: np.ndarray | None, options: Options) -> list[Found]:
        return [self._search_one(query, alive, options.top_k) for query in queries]

    def _search_one(self, query: Terms, alive: np.ndarray | None, top_k: int) -> Found:
        begins, ends = self._slices(query.ids)
        slices = [slice(begin, end) for begin, end in zip(begins, ends)]
        count = max((int(self._rows[part.stop - 1]) + 1 for part in slices if part.start < part.stop), default=0)
        scores, is_met = np.zeros(count, np.float32), np.zeros(count, bool)
        for weight, part in zip(query.weights, slices):
            rows = self._rows[part]  # each once
            scores[rows] += weight * self._weights[part].astype(np.float32)
            is_met[rows] = True
        rows = np.flatnonzero(is_met if alive is None else is_met & alive[:count])
        return best_of(scores[rows], rows, top_k)

    def _slices(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the postings of terms begin and end; at one place for unknown terms."""
        if not len(self._terms):
            return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
        places = np.minimum(np.searchsorted(self._terms, ids), len(self._terms) - 1)
        begins, ends = self._splits[places], self._splits[places + 1]
        return begins, np.where(self._terms[places] == ids, ends, begins)


def _to_ids(values: Any) -> np.ndarray:
    """int32, of the shape of the values.

    Raises:
        ValueError: They are no integers, or out of range.
    """
    ids = np.asarray(values)
    if ids.size and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() > np.iinfo(np.int32).max):
        wrong = ids if ids.dtype.kind not in "iu" else ids[(ids < 0) | (ids > np.iinfo(np.int32).max)]
        raise ValueError(f"ids of terms must be integers from 0 to 2**31 - 1. Received: {wrong.flat[0]!s}.")
    return ids.astype(np.int32)
