"""What an index keeps of each document: a field, and its part of a segment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bertzoo.metrics.vector_similarity import best_scores

ROWS_AT_ONCE = 16_384


class Options(NamedTuple):
    """How a field is searched.

    Attributes:
        top_k: How many documents to find.
        exact: Compare with every document.
        rescore_multiplier: `top_k` times so many candidates get exact scores.
    """

    top_k: int
    exact: bool = False
    rescore_multiplier: int = 4


class Found(NamedTuple):
    """The documents that a query finds in a segment, best first: scores float32 (n,) and rows int64 (n,)."""

    scores: np.ndarray
    rows: np.ndarray


class Part(ABC):
    """A field's part of a segment, opened for reading."""

    @abstractmethod
    def search(self, queries: Any, alive: np.ndarray | None, options: Options) -> list[Found]:
        """The best documents for each query.

        Args:
            queries: As `Field.check_queries` returned them.
            alive: bool (documents,), those that may be found; all where None.
            options: How to search.
        """


class Field(ABC):
    """What an index keeps of each document; a dataclass, whose values the index's manifest holds."""

    kind: ClassVar[str]

    @abstractmethod
    def check(self, values: Any, count: int) -> Any:
        """The values of documents, as `write` takes them.

        Args:
            values: What the user gave, one for each document: (count, …) where they are arrays.
            count: How many documents there are.

        Raises:
            ValueError: They are malformed, or not of `count` documents.
        """

    @abstractmethod
    def check_queries(self, queries: Any) -> Any:
        """Queries, as `Part.search` takes them: (n, …) where they are arrays.

        Args:
            queries: What the user gave.

        Raises:
            ValueError: They are malformed.
        """

    @abstractmethod
    def write(self, folder: Path, name: str, values: Any) -> None:
        """Writes the values of a segment's documents.

        Args:
            folder: The segment's folder.
            name: The field's name, with which the names of files begin.
            values: As `check` returned them: (documents, …) where they are arrays.
        """

    @abstractmethod
    def open(self, folder: Path, name: str) -> Part:
        """The part of a segment that `write` wrote.

        Args:
            folder: The segment's folder.
            name: The field's name.
        """

    @abstractmethod
    def merge(self, folder: Path, name: str, parts: Sequence[tuple[Any, np.ndarray]]) -> None:
        """Writes the values of documents of several parts.

        Args:
            folder, name: As for `write`.
            parts: Parts, and the rows of the documents to take from each, (n,).
        """

    def describe(self) -> dict[str, Any]:
        """The field as JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]  # fields are dataclasses


def check_fits_float16(numbers: np.ndarray, advice: str) -> None:
    """Refuses numbers that would become infinite.

    Raises:
        ValueError: A number is beyond float16; the message ends with the advice.
    """
    for rows in split_rows(np.arange(len(numbers))):
        some = numbers[rows[0] : rows[-1] + 1]
        if (large := some[np.abs(some) > np.finfo(np.float16).max]).size:
            raise ValueError(f"a value does not fit float16: {advice}. Received: {large[0]}.")


def split_rows(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Rows in pieces that are read at once."""
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[begin : begin + ROWS_AT_ONCE]


def join_on_disk(path: Path, arrays: Iterable[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Arrays one after another in a memory-mapped float32 file, which the caller deletes."""
    joined = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    begin = 0
    for array in arrays:
        joined[begin : begin + len(array)] = array
        begin += len(array)
    return joined


def best_of(scores: np.ndarray, rows: np.ndarray, top_k: int) -> Found:
    """The best documents of one query.

    Args:
        scores, rows: (m,) each.
        top_k: How many to keep.
    """
    best, indices = best_scores(scores[None], rows[None], min(top_k, len(rows)))
    return Found(best[0], indices[0])
