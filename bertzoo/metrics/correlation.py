"""Correlations."""

from typing import Any

import numpy as np


def pearson(truth: Any, predicted: Any) -> float:
    """Pearson's correlation of two columns of numbers; NaN where one of them is constant."""
    a, b = _columns(truth, predicted)
    a, b = a - a.mean(), b - b.mean()
    # Scaled first, so that the squares of very small numbers don't vanish.
    a, b = a / (np.abs(a).max() or 1.0), b / (np.abs(b).max() or 1.0)
    spread = np.sqrt((a @ a) * (b @ b))
    return float(np.clip((a @ b) / spread, -1.0, 1.0)) if spread > 0 else float("nan")


def spearman(truth: Any, predicted: Any) -> float:
    """Spearman's correlation: Pearson's of the ranks, equal values sharing their mean rank, as in GLUE's STS-B."""
    a, b = _columns(truth, predicted)
    return pearson(_ranks(a), _ranks(b))


def _columns(truth, predicted) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(truth, dtype="float64"), np.asarray(predicted, dtype="float64")
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise ValueError(f"two columns of as many numbers are needed, at least two. Received: {a.shape} and {b.shape}.")
    return a, b


def _ranks(values: np.ndarray) -> np.ndarray:
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes + 1) / 2)[group]
