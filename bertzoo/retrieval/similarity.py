"""How alike vectors are."""

import numpy as np

MEASURES = ("cosine", "dot")


def similarity(vectors, others, measure: str = "cosine") -> np.ndarray:
    """Each of some vectors against each of others.

    Args:
        vectors, others: (n, width) and (m, width), or a single vector (width,) which counts as one row.
        measure: "cosine" or "dot".

    Returns:
        float32 (n, m).

    Raises:
        ValueError: The measure is unknown, or the widths differ.
    """
    first, second = prepared(vectors, measure), prepared(others, measure)
    _check_widths(first, second)
    return first @ second.T


def pairwise_similarity(vectors, others, measure: str = "cosine") -> np.ndarray:
    """Vectors against those in the same places of others, float32 (n,); as `similarity` otherwise."""
    first, second = prepared(vectors, measure), prepared(others, measure)
    _check_widths(first, second)
    if len(first) != len(second):
        raise ValueError(f"there must be as many vectors on both sides; there are {len(first)} and {len(second)}.")
    return np.einsum("nd,nd->n", first, second)


def prepared(vectors, measure: str) -> np.ndarray:
    """Vectors whose dot products are the measure, float32 (n, width)."""
    if measure not in MEASURES:
        raise ValueError(f"the measure must be one of {', '.join(MEASURES)}; it is {measure!r}.")
    array = np.atleast_2d(as_array(vectors))
    if measure == "dot":
        return array
    return array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)


def as_array(vectors) -> np.ndarray:
    """Vectors of any library as float32.

    Raises:
        ValueError: They hold numbers that are not finite.
    """
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().cpu()
    array = np.asarray(vectors, dtype="float32")
    if not np.isfinite(array).all():
        raise ValueError("the vectors hold numbers that are not finite (NaN or infinity).")
    return array


def _check_widths(first: np.ndarray, second: np.ndarray) -> None:
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"vectors must be equally wide; they have {first.shape[1]} and {second.shape[1]} numbers.")
