"""Late interaction (Khattab and Zaharia 2020): a vector for each token of a document.

The score of a document is the sum over a query's tokens of the greatest dot product with a token of the document
(MaxSim). Token vectors are stored in 8 bits, or in 2 bits as residuals of centroids (Santhanam et al. 2022).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertzoo.metrics.vector_similarity import finite_float32_array
from bertzoo.retrieval.index.field import Field, Found, Options, Part, best_of, check_fits_float16, join_on_disk
from bertzoo.retrieval.index.graph import SMALLEST, Graph, build_graph
from bertzoo.retrieval.index.token_codes import CODECS, open_codes

TOKENS_AT_ONCE = 65_536
TOKENS_OF_DOCUMENT = 4  # tokens looked for, near each token of a query, for each document that is wanted


@dataclass(frozen=True)
class MultiVector(Field):
    """A vector for each token of a document; the score is MaxSim.

    Search finds tokens near each token of the query in a graph, and computes the scores of the documents that hold
    the best of them. Segments of less than 20,000 tokens, and all where `exact` is asked for, are compared document by
    document.

    Args:
        width: The width of the vectors.
        precision: Of the stored vectors: "float16", "int8", or "residual2", 2 bits for each number beside a centroid.

    Documents and queries are sequences of float (tokens, width). Documents without tokens are never found.

    Raises:
        ValueError: An argument is out of its range.
    """

    kind: ClassVar[str] = "multi_vector"
    width: int
    precision: str = "int8"

    def __post_init__(self) -> None:
        if self.width < 1 or self.precision not in CODECS:
            raise ValueError(
                f"width must be positive and precision one of {', '.join(CODECS)}. Received: {self.width!r}, "
                f"{self.precision!r}."
            )

    def check(self, values: Any, count: int) -> list[np.ndarray]:
        documents = self.check_queries(values)
        if len(documents) != count:
            raise ValueError(f"values must be the vectors of {count} documents. Received: {len(documents)}.")
        if self.precision == "float16":
            for document in documents:
                check_fits_float16(document, "scale the vectors")
        return documents

    def check_queries(self, queries: Any) -> list[np.ndarray]:
        checked = [finite_float32_array(query) for query in queries]
        for query in checked:
            if query.ndim != 2 or (query.shape[1] != self.width and len(query)):
                raise ValueError(f"vectors of a text must be (tokens, {self.width}). Received: {query.shape}.")
        return [query.reshape(-1, self.width) for query in checked]

    def write(self, folder: Path, name: str, values: list[np.ndarray]) -> None:
        lengths = np.array([len(document) for document in values], np.int64)
        self._write_tokens(folder, name, np.concatenate([np.zeros((0, self.width), np.float32), *values]), lengths)

    def _write_tokens(self, folder: Path, name: str, tokens: np.ndarray, lengths: np.ndarray) -> None:
        np.save(folder / f"{name}.splits.npy", np.append(0, np.cumsum(lengths)).astype(np.int64))
        CODECS[self.precision](folder, name, tokens)
        if len(tokens) >= SMALLEST:
            read = open_codes(folder, name, self.precision)
            build_graph(folder / f"{name}.usearch", read, len(tokens), "int8")

    def open(self, folder: Path, name: str) -> "MultiVectorPart":
        return MultiVectorPart(self, folder, name)

    def merge(self, folder: Path, name: str, parts: Sequence[tuple["MultiVectorPart", np.ndarray]]) -> None:
        lengths = np.concatenate([part.lengths[rows] for part, rows in parts])
        pieces = (part.read(piece) for part, rows in parts for piece in part.split(rows))
        scratch = folder / f"{name}.scratch.npy"
        tokens = join_on_disk(scratch, pieces, (int(lengths.sum()), self.width))
        self._write_tokens(folder, name, tokens, lengths)
        scratch.unlink()


class MultiVectorPart(Part):
    """The token vectors of a segment, memory-mapped.

    Args:
        field: The field.
        folder: The segment's folder.
        name: The field's name.
    """

    def __init__(self, field: MultiVector, folder: Path, name: str):
        self._splits = np.load(folder / f"{name}.splits.npy", mmap_mode="r")
        self._tokens = open_codes(folder, name, field.precision)
        graph = folder / f"{name}.usearch"
        self._graph = Graph(graph, "int8") if graph.exists() else None

    @property
    def lengths(self) -> np.ndarray:
        """int64 (documents,): how many tokens each has."""
        return np.diff(self._splits)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of all tokens of some documents, float32 (tokens, width)."""
        lengths = self._splits[rows + 1] - self._splits[rows]
        # Positions of tokens in the file: from each document's first on.
        firsts = np.repeat(self._splits[rows] - np.append(0, np.cumsum(lengths)[:-1]), lengths)
        return self._tokens(firsts + np.arange(len(firsts)))

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        """Documents in pieces of about `TOKENS_AT_ONCE` tokens."""
        before = np.cumsum(self.lengths[rows]) // TOKENS_AT_ONCE
        return np.split(rows, np.flatnonzero(np.diff(before)) + 1) if len(rows) else []

    def search(self, queries: Sequence[np.ndarray], alive: np.ndarray | None, options: Options) -> list[Found]:
        may_be_found = self.lengths > 0 if alive is None else alive & (self.lengths > 0)
        if self._graph is None or options.exact:
            return self._compare_all(queries, np.flatnonzero(may_be_found), options.top_k)
        alive_tokens = None if alive is None else np.repeat(alive, self.lengths)
        return [self._search_one(query, alive_tokens, int(may_be_found.sum()), options) for query in queries]

    def _search_one(self, query: np.ndarray, alive: np.ndarray | None, documents: int, options: Options) -> Found:
        """alive: bool (tokens,), of the documents that may be found; all where None. documents: how many these are."""
        assert self._graph is not None
        if not len(query) or not documents:
            return Found(np.zeros(0, np.float32), np.zeros(0, np.int64))
        wanted = options.top_k * options.rescore_multiplier
        count, tokens = TOKENS_OF_DOCUMENT * wanted, len(self._graph) if alive is None else int(alive.sum())
        while True:
            near = np.unique(np.concatenate(self._graph.find(query, count, alive, expansion=count)))
            of_tokens = np.searchsorted(self._splits, near, "right") - 1
            rows, begins = np.unique(of_tokens, return_index=True)
            if count >= tokens or len(rows) >= min(options.top_k, documents):
                break
            count *= 2  # many of them are of the same documents
        # MaxSim with the tokens that were found says which documents are worth the reading of all their tokens.
        scores = np.maximum.reduceat(self._tokens(near) @ query.T, begins, axis=0).clip(0).sum(axis=1)
        rows = np.sort(best_of(scores, rows, wanted).rows)
        pieces = [self._scores([query], piece)[0] for piece in self.split(rows)]
        return best_of(np.concatenate([np.zeros(0, np.float32), *pieces]), rows, options.top_k)

    def _compare_all(self, queries: Sequence[np.ndarray], rows: np.ndarray, top_k: int) -> list[Found]:
        best = [Found(np.zeros(0, np.float32), np.zeros(0, np.int64))] * len(queries)
        for piece in self.split(rows):
            for i, scores in enumerate(self._scores(queries, piece)):
                known = best[i]
                best[i] = best_of(np.append(known.scores, scores), np.append(known.rows, piece), top_k)
        return best

    def _scores(self, queries: Sequence[np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
        """MaxSim of each query with some documents, which have tokens: float32 (documents,) each."""
        tokens, begins = self.read(rows), np.append(0, np.cumsum(self.lengths[rows])[:-1])
        return [np.maximum.reduceat(tokens @ query.T, begins, axis=0).sum(axis=1) for query in queries]
