"""Token vectors with few bits: 8 bits for each number, or the nearest centroid and 2 bits for each number beside it.

The residual of a vector is what its centroid lacks. Of each number of the residual, 2 bits name the quarter of all
residuals that it is in, which stands for that quarter's median (ColBERTv2, Santhanam et al. 2022).
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bertzoo.retrieval.index.field import split_rows
from bertzoo.retrieval.quantization import dequantize_embeddings, round_to_int8

SAMPLE = 100_000  # vectors that centroids and quarters are computed from
ITERATIONS = 8
MOST_CENTROIDS = 4_096
SHIFTS = np.array([0, 2, 4, 6], np.uint8)  # of the quarters of four numbers in a byte
Reader = Callable[[np.ndarray], np.ndarray]


def _write_float16(folder: Path, name: str, tokens: np.ndarray) -> None:
    _write(folder / f"{name}.tokens.npy", tokens, lambda x: x.astype(np.float16), tokens.shape[1], np.float16)


def _write_int8(folder: Path, name: str, tokens: np.ndarray) -> None:
    pieces = list(split_rows(np.arange(len(tokens)))) or [np.zeros(0, np.int64)]
    low = np.min([tokens[rows].min(axis=0, initial=0) for rows in pieces], axis=0)
    high = np.max([tokens[rows].max(axis=0, initial=0) for rows in pieces], axis=0)
    ranges = np.stack([low, high])
    np.save(folder / f"{name}.ranges.npy", ranges)
    path, width = folder / f"{name}.tokens.npy", tokens.shape[1]
    _write(path, tokens, lambda x: round_to_int8(x, ranges), width, np.int8)


def _write_residual2(folder: Path, name: str, tokens: np.ndarray) -> None:
    sample = np.array(tokens[:: -(-len(tokens) // SAMPLE) or 1])
    centroids = find_centroids(sample, min(MOST_CENTROIDS, max(1, int(4 * np.sqrt(len(tokens))))))
    residuals = (sample - centroids[nearest(sample, centroids)]).ravel() if len(sample) else np.zeros(1, np.float32)
    cuts, values = np.quantile(residuals, [0.25, 0.5, 0.75]), np.quantile(residuals, [0.125, 0.375, 0.625, 0.875])
    np.savez(folder / f"{name}.residuals.npz", centroids=centroids, values=values.astype(np.float32))
    _write(folder / f"{name}.centroids.npy", tokens, lambda x: nearest(x, centroids)[:, None], 1, np.uint16)

    def pack(x: np.ndarray) -> np.ndarray:
        quarters = np.searchsorted(cuts, x - centroids[nearest(x, centroids)], "right").astype(np.uint8)
        quarters = np.pad(quarters, ((0, 0), (0, -quarters.shape[1] % 4)))
        return np.bitwise_or.reduce(quarters.reshape(len(x), -1, 4) << SHIFTS, axis=2)

    _write(folder / f"{name}.tokens.npy", tokens, pack, -(-tokens.shape[1] // 4), np.uint8)


def _write(path: Path, tokens: np.ndarray, encode: Reader, width: int, dtype: type) -> None:
    codes = np.lib.format.open_memmap(path, "w+", dtype, (len(tokens), width)) if len(tokens) else None
    if codes is None:
        np.save(path, np.zeros((0, width), dtype))
        return
    for rows in split_rows(np.arange(len(tokens))):
        codes[rows] = encode(tokens[rows])
    codes.flush()


CODECS = {"float16": _write_float16, "int8": _write_int8, "residual2": _write_residual2}


def open_codes(folder: Path, name: str, precision: str) -> Reader:
    """A function: positions of tokens (m,) -> their vectors, float32 (m, width).

    Args:
        folder: The segment's folder.
        name: The field's name.
        precision: A key of `CODECS`.
    """
    codes = np.load(folder / f"{name}.tokens.npy", mmap_mode="r")
    if precision == "float16":
        return lambda rows: codes[rows].astype(np.float32)
    if precision == "int8":
        ranges = np.load(folder / f"{name}.ranges.npy")
        return lambda rows: dequantize_embeddings(codes[rows], "int8", ranges)
    numbers = np.load(folder / f"{name}.centroids.npy", mmap_mode="r")
    with np.load(folder / f"{name}.residuals.npz") as file:
        centroids, values = file["centroids"], file["values"]

    def read(rows: np.ndarray) -> np.ndarray:
        quarters = (codes[rows][:, :, None] >> SHIFTS) & 3
        base = centroids[numbers[rows, 0]]
        return base + values[quarters.reshape(len(base), codes.shape[1] * 4)[:, : base.shape[1]]]

    return read


def find_centroids(vectors: np.ndarray, count: int) -> np.ndarray:
    """Centroids by k-means (Lloyd), begun at evenly spaced vectors.

    Args:
        vectors: float32 (n, width).
        count: How many, if there are as many vectors.

    Returns:
        float32 (min(count, n), width).
    """
    centroids = vectors[np.linspace(0, len(vectors) - 1, min(count, len(vectors))).astype(np.int64)].copy()
    for _ in range(ITERATIONS if len(centroids) else 0):
        numbers = nearest(vectors, centroids)
        order = np.argsort(numbers, kind="stable")
        used, begins = np.unique(numbers[order], return_index=True)
        sums = np.add.reduceat(vectors[order], begins, axis=0)
        centroids[used] = sums / np.diff(np.append(begins, len(vectors)))[:, None]
    return centroids


def nearest(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The number of the centroid nearest to each vector (Euclidean), int64 (n,).

    Args:
        vectors: float32 (n, width).
        centroids: float32 (k, width).
    """
    halves = np.square(centroids).sum(axis=1) / 2
    pieces = [np.argmax(vectors[rows] @ centroids.T - halves, axis=1) for rows in split_rows(np.arange(len(vectors)))]
    return np.concatenate([np.zeros(0, np.int64), *pieces])
