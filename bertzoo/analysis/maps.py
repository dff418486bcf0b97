"""Vectors as points of a plane (Pearson 1901)."""

from dataclasses import dataclass

import numpy as np

from bertzoo.metrics.vector_similarity import as_array


@dataclass(frozen=True)
class PlaneMap:
    """points: float64 (n, 2). shares: float64 (2,), how much of all spread each direction holds."""

    points: np.ndarray
    shares: np.ndarray


def plane_map(vectors) -> PlaneMap:
    """Vectors seen from where they spread most: their first two principal components, without any other freedom.

    Args:
        vectors: (n, width), such as a layer of `word_vectors(…).vectors`; n ≥ 3, width ≥ 2.

    Raises:
        ValueError: There are too few, or all are the same.
    """
    array = as_array(vectors).astype("float64")
    if array.ndim != 2 or len(array) < 3 or array.shape[1] < 2:
        raise ValueError(f"a map needs at least three vectors of two numbers or more; their shape is {array.shape}.")
    places, spread, directions = np.linalg.svd(array - array.mean(axis=0), full_matrices=False)
    if spread[0] == 0:
        raise ValueError("all vectors are the same; there is nothing to map.")
    # A direction is known up to its sign: the largest part of each is taken as positive.
    largest = np.abs(directions[:2]).argmax(axis=1)
    signs = np.sign(directions[[0, 1], largest])
    return PlaneMap(places[:, :2] * spread[:2] * signs, spread[:2] ** 2 / (spread**2).sum())
