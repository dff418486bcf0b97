"""Vectors in 8 bits or 1 bit a number, and search among them.

The formulas are those of sentence-transformers' `quantize_embeddings`: 8 bits count steps of (maximum - minimum) / 255
from the minimum of each dimension; 1 bit is the sign.
"""

from typing import Any

import numpy as np

from bertzoo.metrics.vector_similarity import best_scores, finite_float32_array, merge_best

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
CHUNK = 100_000  # vectors that are decoded at once


def quantize_embeddings(
    embeddings: Any, precision: str, ranges: np.ndarray | None = None, calibration_embeddings: Any = None
) -> np.ndarray:
    """Vectors with fewer bits.

    Args:
        embeddings: float (n, width), or one vector (width,).
        precision: "float32"; "int8" or "uint8", a byte for each number; "binary" or "ubinary", the signs of eight
            numbers in a byte.
        ranges: For 8 bits, the minimum and maximum of each dimension, (2, width).
        calibration_embeddings: Vectors (m, width) whose ranges are taken where `ranges` is None; else the vectors' own.

    Returns:
        (n, width), or for bits (n, ceil(width / 8)); of one vector, its row alone.

    Raises:
        ValueError: The precision is unknown, or ranges would follow from a single vector.

    Example:
        >>> bz.retrieval.quantize_embeddings(np.array([[0.5, -0.2, 0.1, -0.9, 0.3, 0.3, -0.1, 0.2]]), "binary").shape
        (1, 1)
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}. Received: {precision!r}.")
    array = finite_float32_array(embeddings)
    if precision == "float32":
        return array
    if precision.endswith("binary"):
        bits = np.packbits(array > 0, axis=-1)
        return bits if precision == "ubinary" else (bits ^ 0x80).view(np.int8)
    if ranges is None and array.size:
        ranges = calibrate_ranges(array if calibration_embeddings is None else calibration_embeddings)
    starts, steps = _starts_and_steps(np.zeros((2, array.shape[-1])) if ranges is None else ranges)
    levels = np.clip(np.floor((array - starts) / steps), 0, 255)
    return levels.astype(np.uint8) if precision == "uint8" else (levels - 128).astype(np.int8)


def round_to_int8(vectors: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Vectors in 8 bits by the nearest step, so that what `dequantize_embeddings` returns gets its codes again.

    Args:
        vectors: float32 (n, width).
        ranges: (2, width).
    """
    return quantize_embeddings(vectors + (ranges[1] - ranges[0]) / 510, "int8", ranges)


def dequantize_embeddings(
    codes: np.ndarray, precision: str, ranges: np.ndarray | None = None, width: int | None = None
) -> np.ndarray:
    """The vectors that quantized ones stand for, float32 (n, width); signs become 0 and 1.

    Args:
        codes, precision: What `quantize_embeddings` returned, and its precision.
        ranges: For 8 bits, (2, width).
        width: For 1 bit, the width of the vectors; all bits where None.
    """
    if precision.endswith("binary"):
        bits = codes.view(np.uint8) ^ np.uint8(0x80 if precision == "binary" else 0)
        return np.unpackbits(bits, axis=-1)[..., :width].astype(np.float32)
    if precision == "float32" or ranges is None:
        return codes.astype(np.float32, copy=False)
    starts, steps = _starts_and_steps(ranges)
    return (codes.astype(np.float32) + (128 if precision == "int8" else 0)) * steps + starts


def calibrate_ranges(embeddings: Any) -> np.ndarray:
    """The minimum and maximum of each dimension of some vectors (n, width), float32 (2, width).

    Raises:
        ValueError: There is only one vector.
    """
    array = np.atleast_2d(finite_float32_array(embeddings))
    if len(array) < 2:
        raise ValueError(
            f"ranges follow from two or more vectors. Received: {len(array)}. Pass ranges or calibration_embeddings."
        )
    return np.stack([array.min(axis=0), array.max(axis=0)])


def search_quantized(
    query_vectors: Any,
    corpus_codes: np.ndarray,
    precision: str,
    top_k: int = 10,
    ranges: np.ndarray | None = None,
    rescore_multiplier: int | None = 2,
) -> list[list[dict[str, Any]]]:
    """The nearest of quantized vectors for each query: candidates by quantized queries, then rescored by the queries
    as they are, as sentence-transformers' `semantic_search_usearch`.

    Args:
        query_vectors: float (n, width).
        corpus_codes: What `quantize_embeddings` made of the corpus.
        precision: The precision of the corpus, "int8", "uint8", "binary" or "ubinary".
        top_k: How many to find for each query.
        ranges: For 8 bits, the ranges with which the corpus was quantized, (2, width).
        rescore_multiplier: `top_k` times so many candidates are rescored; None rescores none.

    Returns:
        For each query a list, the best first, of `{"corpus_id": index in the corpus, "score": …}`. Scores are dot
        products of queries with dequantized vectors; without rescoring those of the codes, or for bits the share of
        equal signs.

    Raises:
        ValueError: The precision is unknown, or ranges are missing.
    """
    if precision not in PRECISIONS[1:] or (precision.endswith("int8") and ranges is None):
        raise ValueError(
            f"precision must be one of {', '.join(PRECISIONS[1:])}, with ranges for 8 bits. Received: {precision!r}, "
            f"{'no ranges' if ranges is None else 'ranges'}."
        )
    queries = np.atleast_2d(finite_float32_array(query_vectors))
    count = min(top_k * (rescore_multiplier or 1), len(corpus_codes))
    codes = quantize_embeddings(queries, precision, ranges)
    scores, rows = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
    for begin in range(0, len(corpus_codes), CHUNK):
        more = _code_scores(codes, corpus_codes[begin : begin + CHUNK], precision, queries.shape[1])
        scores, rows = merge_best(scores, rows, more, np.arange(begin, begin + more.shape[1]), count)
    if rescore_multiplier is not None:
        vectors = dequantize_embeddings(corpus_codes[rows], precision, ranges, queries.shape[1])
        scores, rows = best_scores(np.einsum("qd,qkd->qk", queries, vectors), rows, min(top_k, count))
    return [[{"corpus_id": int(row), "score": float(score)} for score, row in zip(*pair)] for pair in zip(scores, rows)]


def _code_scores(query_codes: np.ndarray, corpus_codes: np.ndarray, precision: str, width: int) -> np.ndarray:
    """Scores of codes with codes, float32 (n, m): float32 holds sums of up to a thousand 8-bit products exactly."""
    if not precision.endswith("binary"):
        return query_codes.astype(np.float32) @ corpus_codes.astype(np.float32).T
    signs = [2 * dequantize_embeddings(codes, precision, None, width) - 1 for codes in (query_codes, corpus_codes)]
    return (signs[0] @ signs[1].T / width + 1) / 2


def _starts_and_steps(ranges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    starts, ends = np.asarray(ranges, np.float32)
    steps = (ends - starts) / 255
    return starts, np.where(steps == 0, np.float32(1), steps)
