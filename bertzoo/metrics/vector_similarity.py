"""Similarity of vectors."""

from typing import Any

import numpy as np

MEASURES = ("cosine", "dot", "euclidean", "manhattan")


def similarity(vectors: Any, others: Any, measure: str = "cosine") -> np.ndarray:
    """Each of some vectors against each of others.

    Args:
        vectors, others: (n, width) and (m, width), or a single vector (width,) which counts as one row.
        measure: "cosine" or "dot"; or "euclidean" or "manhattan", the distance with a minus before it.

    Returns:
        float32 (n, m).

    Raises:
        ValueError: The measure is unknown, or the widths differ.

    Example:
        >>> bz.retrieval.similarity(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0], [3.0, 0.0]])).tolist()
        [[0.0, 1.0]]
    """
    return prepared_similarity(*_sides(vectors, others, measure), measure)


def pairwise_similarity(vectors: Any, others: Any, measure: str = "cosine") -> np.ndarray:
    """Vectors against those at the same index of others.

    Args:
        vectors, others: (n, width) each.
        measure: As for `similarity`.

    Returns:
        float32 (n,).
    """
    first, second = _sides(vectors, others, measure)
    if len(first) != len(second):
        raise ValueError(f"both sides must have equally many vectors. Received: {len(first)} and {len(second)}.")
    if measure in ("cosine", "dot"):
        return np.einsum("nd,nd->n", first, second)
    return -np.linalg.norm(first - second, ord=2 if measure == "euclidean" else 1, axis=1)


def _sides(vectors: Any, others: Any, measure: str) -> tuple[np.ndarray, np.ndarray]:
    first, second = prepare_vectors(vectors, measure), prepare_vectors(others, measure)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"vectors must be equally wide. Received: widths {first.shape[1]} and {second.shape[1]}.")
    return first, second


def prepare_vectors(vectors: Any, measure: str) -> np.ndarray:
    """Vectors as `prepared_similarity` takes them, float32 (n, width): scaled to length 1 for cosines."""
    if measure not in MEASURES:
        raise ValueError(f"the measure must be one of {', '.join(MEASURES)}. Received: {measure!r}.")
    array = np.atleast_2d(finite_float32_array(vectors))
    if measure != "cosine":
        return array
    return array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)


def prepared_similarity(query_vectors: np.ndarray, corpus_vectors: np.ndarray, measure: str) -> np.ndarray:
    """The measure of vectors of `prepare_vectors` (n, width) and (m, width), float32 (n, m)."""
    if measure in ("cosine", "dot"):
        return query_vectors @ corpus_vectors.T
    if measure == "euclidean":
        squares = (
            np.square(query_vectors).sum(axis=1)[:, None]
            - 2 * query_vectors @ corpus_vectors.T
            + np.square(corpus_vectors).sum(axis=1)
        )
        return -np.sqrt(np.maximum(squares, 0))
    # Query by query: all differences at once would take n × m × width numbers.
    return -np.stack([np.abs(corpus_vectors - query).sum(axis=1) for query in query_vectors]).reshape(
        len(query_vectors), len(corpus_vectors)
    )


def best_scores(scores: np.ndarray, indices: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best scores of each row in order, and their indices; of equal scores the leftmost.

    Args:
        scores, indices: (n, m) each.
        top_k: How many to keep; all where there are fewer.

    Returns:
        Both (n, min(top_k, m)).
    """
    if scores.shape[1] > top_k:
        # What is above the last score taken is in for sure; of those equal to it, the leftmost fill up.
        last = -np.partition(-scores, top_k - 1, axis=1)[:, top_k - 1 : top_k]
        above, equal = scores > last, scores == last
        room = top_k - above.sum(axis=1, keepdims=True)
        taken = above | (equal & (np.cumsum(equal, axis=1) <= room))
        scores = scores[taken].reshape(len(scores), top_k)
        indices = indices[taken].reshape(len(indices), top_k)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(indices, order, axis=1)


def merge_best(
    scores: np.ndarray, indices: np.ndarray, more: np.ndarray, numbers: np.ndarray, top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best of the scores of each row so far and those of a further chunk.

    Args:
        scores, indices: As `best_scores` gives them, (n, m) each.
        more: The scores of the chunk, (n, chunk).
        numbers: The indices of the chunk, (chunk,).
        top_k: How many to keep; all where there are fewer.

    Returns:
        Both (n, min(top_k, m + chunk)).
    """
    numbers = np.broadcast_to(numbers, more.shape)
    return best_scores(np.hstack([scores, more]), np.hstack([indices, numbers]), top_k)


def finite_float32_array(vectors: Any) -> np.ndarray:
    """Vectors of any library as float32.

    Raises:
        ValueError: They hold numbers that are not finite.
    """
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().cpu().float()  # NumPy has no bfloat16
    array = np.asarray(vectors, dtype="float32")
    if array.size == 0:
        array = array.reshape(0, array.shape[-1])
    if not np.isfinite(array).all():
        raise ValueError("the vectors hold numbers that are not finite (NaN or infinity).")
    return array
