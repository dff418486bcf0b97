"""Exercises of notebook 15."""

from collections.abc import Callable

import numpy as np


def whiten(answer: Callable) -> str | None:
    rng = np.random.default_rng(0)
    for width in (2, 3, 6):
        vectors = rng.normal(size=(200, width)) @ rng.normal(size=(width, width)) + rng.normal(0, 3, width)
        name = f"200 vectors of {width} numbers"
        actual = np.asarray(answer(vectors.copy()))
        if actual.shape != vectors.shape:
            return f"{name}: the shape is {actual.shape}, expected {vectors.shape}."
        if not np.isfinite(actual).all():
            return f"{name}: some of your numbers are not finite."
        if np.abs(actual.mean(axis=0)).max() > 1e-6:
            return f"{name}: the mean of your vectors is {np.round(actual.mean(axis=0), 2).tolist()}, expected zeros."
        hint = _spread_hint(actual)
        if hint is not None:
            return f"{name}: {hint}"
        if not _is_linear(vectors, actual):
            return f"{name}: your vectors are no linear map of the centred ones; is each moved and turned alike?"
    return None


def _spread_hint(actual: np.ndarray) -> str | None:
    spread = actual.T @ actual / len(actual)
    alone = np.diag(spread)
    if np.abs(alone - 1).max() > 1e-3:
        size = len(actual)
        if np.abs(alone * size / (size - 1) - 1).max() < 1e-6:
            return f"the mean squares are {alone[0]:.3f}, expected 1: the covariance was divided by n − 1, here by n."
        return f"the mean squares of your numbers, place by place, are {np.round(alone, 3).tolist()}, expected 1 each."
    together = np.abs(spread - np.diag(alone)).max()
    if together > 1e-3:
        return f"two places still vary together: the mean of their product is {together:.2f}, expected 0."
    return None


def _is_linear(vectors: np.ndarray, actual: np.ndarray) -> bool:
    centred = vectors - vectors.mean(axis=0)
    kernel = np.linalg.lstsq(centred, actual, rcond=None)[0]
    return bool(np.abs(centred @ kernel - actual).max() < 1e-6)


CHECKS = {"15.1": whiten}
