"""How much sentence vectors crowd into a narrow cone, and a cure (Ethayarajh 2019; Su et al. 2021)."""

from dataclasses import dataclass

import numpy as np

from bertzoo.analysis.similarity import layer_vectors
from bertzoo.metrics.vector_similarity import as_array, prepared
from bertzoo.text.tokenizer import Tokenizer

NOISE = 1e-12  # of the greatest variance: below it there is float32's rounding


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
        spread, directions = spread[::-1], directions[:, ::-1]
        rank = int((spread > NOISE * spread[0]).sum())
        if rank < dimensions:
            raise ValueError(
                f"{len(array)} vectors spread in {rank} directions only; take dimensions={rank} or fewer, or more "
                "vectors."
            )
        return cls(mean, directions[:, :dimensions] / np.sqrt(spread[:dimensions]))

    def __call__(self, vectors) -> np.ndarray:
        """Whitened vectors, float32 (n, dimensions)."""
        return ((as_array(vectors) - self.mean) @ self.kernel).astype("float32")


@dataclass(frozen=True)
class LayerAnisotropy:
    """The mean cosine of pairs of vectors in each layer, first of the embeddings' output: float64 (layers + 1,), as the
    vectors are, and whitened. dimensions: int (layers + 1,), the directions that whitening kept."""

    before: np.ndarray
    after: np.ndarray
    dimensions: np.ndarray


def layer_anisotropy(
    model, texts, *, per: str = "token", tokenizer: Tokenizer | None = None, batch_size: int = 32
) -> LayerAnisotropy:
    """How much a model's vectors crowd into a cone, layer by layer, before and after whitening.

    Whitening learns from the vectors that it is applied to, and keeps half as many directions as there are vectors, if
    the vectors are wider than that: in n - 1 directions n vectors would be equally far apart whatever they mean.

    Args:
        model, texts, per, tokenizer, batch_size: As `layer_vectors`'.

    Raises:
        ValueError: There are fewer than four vectors, or all vectors of a layer are the same.
    """
    before, after, kept = [], [], []
    for vectors in layer_vectors(model, texts, per=per, tokenizer=tokenizer, batch_size=batch_size):
        if len(vectors) < 4:
            raise ValueError(f"whitening needs at least four vectors; there are {len(vectors)}. Give more texts.")
        spread = np.linalg.svd(vectors - vectors.mean(axis=0, dtype="float64"), compute_uv=False) ** 2
        dimensions = min(len(vectors) // 2, int((spread > 10 * NOISE * spread[0]).sum()))
        if dimensions == 0:
            raise ValueError("all vectors of a layer are the same; there is nothing to whiten.")
        before.append(mean_cosine(vectors))
        after.append(mean_cosine(Whitening.fit(vectors, dimensions)(vectors)))
        kept.append(dimensions)
    return LayerAnisotropy(np.array(before), np.array(after), np.array(kept))
