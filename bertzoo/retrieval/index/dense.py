"""Dense vectors: one of fixed width for each document."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertzoo.metrics.vector_similarity import finite_float32_array, merge_best, prepare_vectors
from bertzoo.retrieval.index.field import (
    Field,
    Found,
    Options,
    Part,
    best_of,
    check_fits_float16,
    join_on_disk,
    split_rows,
)
from bertzoo.retrieval.index.graph import PRECISIONS, SMALLEST, Graph, build_graph
from bertzoo.retrieval.quantization import dequantize_embeddings, quantize_embeddings, round_to_int8

MEASURES = ("cosine", "dot")


@dataclass(frozen=True)
class Dense(Field):
    """One vector for each document.

    Search finds candidates in a graph and computes their scores from the stored vectors; segments of less than 20,000
    documents, and all where `exact` is asked for, are compared one by one.

    Args:
        width: The width of the vectors.
        measure: "cosine" or "dot".
        precision: Of the stored vectors, from which scores are computed: "float32", "float16", "int8" or "binary".
        graph_precision: Of the vectors in the graph, which finds candidates: one of these.

    Documents' vectors are float (n, width), queries (n, width) or (width,) for one.

    Raises:
        ValueError: An argument is out of its range.
    """

    kind: ClassVar[str] = "dense"
    width: int
    measure: str = "cosine"
    precision: str = "float16"
    graph_precision: str = "int8"

    def __post_init__(self) -> None:
        if (
            self.width < 1
            or self.measure not in MEASURES
            or not {self.precision, self.graph_precision} <= set(PRECISIONS)
        ):
            raise ValueError(
                f"width must be positive, measure one of {', '.join(MEASURES)}, and precisions of "
                f"{', '.join(PRECISIONS)}. Received: {self}."
            )

    def check(self, values: Any, count: int) -> np.ndarray:
        vectors = values if isinstance(values, np.ndarray) else finite_float32_array(values)
        if vectors.shape != (count, self.width) or vectors.dtype.kind != "f":
            raise ValueError(
                f"values must be float vectors {(count, self.width)}. Received: {vectors.dtype} {vectors.shape}."
            )
        if self.measure == "dot":
            for argument in ("precision", "graph_precision"):
                if getattr(self, argument) == "float16":
                    check_fits_float16(vectors, f'use {argument}="float32"')
        return vectors

    def check_queries(self, queries: Any) -> np.ndarray:
        vectors = prepare_vectors(queries, self.measure)
        if vectors.shape[1] != self.width:
            raise ValueError(f"queries must be of width {self.width}. Received: {vectors.shape}.")
        return vectors

    def write(self, folder: Path, name: str, values: np.ndarray) -> None:
        self._write(folder, name, values, self.measure)

    def _write(self, folder: Path, name: str, values: np.ndarray, measure: str) -> None:
        self._store(folder, name, values, measure)
        if len(values) >= SMALLEST:
            build_graph(folder / f"{name}.usearch", self.open(folder, name).read, len(values), self.graph_precision)

    def _store(self, folder: Path, name: str, values: np.ndarray, measure: str) -> None:
        pieces = list(split_rows(np.arange(len(values))))
        ranges = None
        if self.precision == "int8":
            scaled = (prepare_vectors(values[rows], measure) for rows in pieces)
            sides = [(x.min(axis=0), x.max(axis=0)) for x in scaled]
            ranges = np.stack([np.min([low for low, _ in sides], axis=0), np.max([high for _, high in sides], axis=0)])
            np.save(folder / f"{name}.ranges.npy", ranges)
        width = self.width if self.precision != "binary" else -(-self.width // 8)
        dtype = np.uint8 if self.precision == "binary" else np.dtype(self.precision)
        stored = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, (len(values), width))
        for rows in pieces:
            stored[rows] = _encode(prepare_vectors(values[rows], measure), self.precision, ranges)
        stored.flush()

    def open(self, folder: Path, name: str) -> "DensePart":
        return DensePart(self, folder, name)

    def merge(self, folder: Path, name: str, parts: Sequence[tuple["DensePart", np.ndarray]]) -> None:
        scratch = folder / f"{name}.scratch.npy"
        pieces = (part.read(rows) for part, chosen in parts for rows in split_rows(chosen))
        joined = join_on_disk(scratch, pieces, (sum(len(rows) for _, rows in parts), self.width))
        self._write(folder, name, joined, "dot")  # as they are: scaled again, quantized vectors would change each time
        scratch.unlink()


class DensePart(Part):
    """The vectors of a segment, memory-mapped.

    Args:
        field: The field.
        folder: The segment's folder.
        name: The field's name.
    """

    def __init__(self, field: Dense, folder: Path, name: str):
        self._field = field
        self._stored = np.load(folder / f"{name}.npy", mmap_mode="r")
        ranges, graph = folder / f"{name}.ranges.npy", folder / f"{name}.usearch"
        self._ranges = np.load(ranges) if ranges.exists() else None
        self._graph = Graph(graph, field.graph_precision) if graph.exists() else None

    def read(self, rows: np.ndarray | slice) -> np.ndarray:
        """The vectors of rows, float32 (m, width)."""
        codes = self._stored[rows]
        if self._field.precision == "binary":
            signs = 2 * dequantize_embeddings(codes, "ubinary", None, self._field.width) - 1
            return signs / np.sqrt(np.float32(self._field.width))
        return dequantize_embeddings(codes, self._field.precision, self._ranges)

    def search(self, queries: np.ndarray, alive: np.ndarray | None, options: Options) -> list[Found]:
        if self._graph is None or options.exact:
            return self._compare_all(queries, alive, options.top_k)
        candidates = self._graph.find(queries, options.top_k * options.rescore_multiplier, alive)
        return [best_of(self.read(rows) @ query, rows, options.top_k) for query, rows in zip(queries, candidates)]

    def _compare_all(self, queries: np.ndarray, alive: np.ndarray | None, top_k: int) -> list[Found]:
        scores, found = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        all_rows = np.arange(len(self._stored)) if alive is None else np.flatnonzero(alive)
        for rows in split_rows(all_rows):
            vectors = self.read(slice(rows[0], rows[-1] + 1) if alive is None else rows)  # a slice is not copied
            scores, found = merge_best(scores, found, queries @ vectors.T, rows, top_k)
        return [Found(*pair) for pair in zip(scores, found)]


def _encode(vectors: np.ndarray, precision: str, ranges: np.ndarray | None) -> np.ndarray:
    if precision == "binary":
        return quantize_embeddings(vectors, "ubinary")
    return vectors.astype(precision) if ranges is None else round_to_int8(vectors, ranges)
