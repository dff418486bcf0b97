"""How much sentence vectors crowd into a narrow cone, and a cure (Ethayarajh 2019; Su et al. 2021)."""

from dataclasses import dataclass

import numpy as np

from bertzoo.retrieval.similarity import as_array, prepared


def mean_cosine(vectors) -> float:
    """The mean cosine over all pairs of different rows: 0 where directions are even, near 1 in a narrow cone.

    It is the anisotropy of Ethayarajh 2019, section 3.4, over all pairs instead of random ones: with unit vectors, the
    sum over pairs is the squared length of their sum less the rows themselves.

    Args:
        vectors: (n, width), n ≥ 2.

    Raises:
        ValueError: There are fewer than two rows.
    """
    units = prepared(vectors, "cosine").astype("float64")
    count = len(units)
    if count < 2:
        raise ValueError(f"the cosine of pairs needs at least two vectors; there is {count}.")
    total = units.sum(axis=0)
    return float((total @ total - np.sum(units * units)) / (count * (count - 1)))


@dataclass(frozen=True)
class Whitening:
    """(vectors - mean) · kernel: vectors without a common direction, all directions of the same spread (Su et al. 2021,
    section 3, algorithm 1).

    mean: (width,). kernel: (width, dimensions).
    """

    mean: np.ndarray
    kernel: np.ndarray

    @classmethod
    def fit(cls, vectors, dimensions: int | None = None) -> "Whitening":
        """Learns from vectors (n, width), best many more than `width`.

        Args:
            vectors: (n, width).
            dimensions: How many directions to keep, those of the greatest spread; all where None.

        Raises:
            ValueError: `dimensions` is out of range, or there is no spread in that many directions.
        """
        array = as_array(vectors).astype("float64")
        width = array.shape[1]
        dimensions = width if dimensions is None else dimensions
        if not 1 <= dimensions <= width:
            raise ValueError(f"dimensions must be from 1 to {width}; it is {dimensions!r}.")
        mean = array.mean(axis=0)
        spread, directions = np.linalg.eigh(np.cov(array - mean, rowvar=False, bias=True).reshape(width, width))
        spread, directions = spread[::-1][:dimensions], directions[:, ::-1][:, :dimensions]
        if spread[-1] <= 1e-12 * spread[0]:
            rank = int((spread > 1e-12 * spread[0]).sum())
            raise ValueError(
                f"{len(array)} vectors spread in {rank} directions only; take dimensions={rank} or fewer, or more "
                "vectors."
            )
        return cls(mean, directions / np.sqrt(spread))

    def __call__(self, vectors) -> np.ndarray:
        """Whitened vectors, float32 (n, dimensions)."""
        return ((as_array(vectors) - self.mean) @ self.kernel).astype("float32")
