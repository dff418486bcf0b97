"""Approximate nearest neighbours of a segment: a graph (HNSW; Malkov and Yashunin 2016) by usearch, memory-mapped.

Vectors in the graph may have fewer bits than those that scores are computed from. 8 bits have one range for all
dimensions here, so that products of codes rank as products of vectors do.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.retrieval.index.field import split_rows
from bertzoo.retrieval.quantization import quantize_embeddings

PRECISIONS = ("float32", "float16", "int8", "binary")
SMALLEST = 20_000  # vectors; fewer are compared one by one
EXPANSION = 512  # candidates that a search keeps in view, at least: recall@10 of 0.99 in 100,000 vectors of texts


def build_graph(path: Path, read: Callable[[np.ndarray], np.ndarray], count: int, precision: str) -> None:
    """Writes a graph.

    Args:
        path: The file.
        read: Rows (m,) -> their vectors, float32 (m, width).
        count: How many rows there are, at least one.
        precision: Of the vectors in the graph.

    Raises:
        ImportError: usearch is missing.
    """
    pieces = list(split_rows(np.arange(count)))
    width = read(pieces[0][:1]).shape[1]
    limit = max(float(np.abs(read(rows)).max()) for rows in pieces) if precision == "int8" else 1.0
    graph = _usearch().Index(
        ndim=width if precision != "binary" else 8 * -(-width // 8),
        metric="hamming" if precision == "binary" else "ip",
        dtype={"float32": "f32", "float16": "f16", "int8": "i8", "binary": "b1"}[precision],
    )
    for rows in pieces:
        # Several threads would leave a few vectors that no search reaches, and another graph each time.
        graph.add(rows, _encode(read(rows), precision, limit), threads=1)
    graph.save(str(path))
    described = {"limit": limit, "bytes": path.stat().st_size}
    path.with_suffix(".graph.json").write_text(json.dumps(described), "utf-8")


class Graph:
    """A graph that `build_graph` wrote.

    Args:
        path: The file.
        precision: As of `build_graph`.

    Raises:
        ImportError: usearch is missing.
        ValueError: The file is not as it was written.
    """

    def __init__(self, path: Path, precision: str):
        described, size = json.loads(path.with_suffix(".graph.json").read_bytes()), path.stat().st_size
        if size != described["bytes"]:  # usearch would read beyond its end
            raise ValueError(
                f"{path} must have {described['bytes']} bytes. Received: a damaged file of {size}. "
                "Make the index again."
            )
        self._graph = _usearch().Index.restore(str(path), view=True)
        self._precision, self._limit = precision, float(described["limit"])

    def __len__(self) -> int:
        return len(self._graph)

    def find(
        self, queries: np.ndarray, count: int, alive: np.ndarray | None = None, expansion: int = EXPANSION
    ) -> list[np.ndarray]:
        """Rows near each query, int64, best first.

        Args:
            queries: float32 (n, width).
            count: How many to find for each, unless the graph has fewer.
            alive: bool (rows,), those that may be found; all where None.
            expansion: Candidates that a search keeps in view, at least.
        """
        codes = _encode(queries, self._precision, self._limit)
        wanted = min(count, len(self) if alive is None else int(alive.sum()))
        taken = wanted
        while True:
            self._graph.expansion_search = max(expansion, taken)
            matches = self._graph.search(codes, taken)
            # One query gives other objects than several, without counts.
            counts = np.atleast_1d(getattr(matches, "counts", len(matches.keys)))
            rows = [row[:n] for row, n in zip(np.atleast_2d(matches.keys).astype(np.int64), counts)]
            rows = rows if alive is None else [row[alive[row]][:wanted] for row in rows]
            if taken >= len(self) or min(map(len, rows)) >= wanted:
                return rows
            taken = min(2 * taken, len(self))


def _encode(vectors: np.ndarray, precision: str, limit: float) -> np.ndarray:
    if precision == "int8":
        ranges = np.broadcast_to(np.array([[-limit], [limit]], np.float32), (2, vectors.shape[1]))
        return quantize_embeddings(vectors, "int8", ranges)
    return quantize_embeddings(vectors, "ubinary") if precision == "binary" else vectors.astype(precision)


def _usearch() -> Any:
    try:
        import usearch.index
    except ImportError as error:
        raise ImportError(
            f'{error}. Approximate search needs the extra "search"; in the clone of this project: '
            'pip install -e ".[search]"'
        ) from error
    return usearch.index
