"""Exercises of notebook 06."""

from collections.abc import Callable

import numpy as np


def report(answer: Callable) -> str | None:
    rng = np.random.default_rng(0)
    cases = [
        np.array([[0.5, 0.8], [0.7, 0.8], [0.9, 0.5]]),
        *(rng.random((seeds, sizes)) for seeds, sizes in ((5, 4), (3, 3), (8, 1))),
    ]
    for scores in cases:
        actual = answer(scores.copy())
        if not isinstance(actual, (tuple, list, np.ndarray)) or len(actual) != 2:
            return f"report of {len(scores)} seeds: got {type(actual).__name__}, expected a pair: means, deviations."
        hint = _hint(np.asarray(actual[0], float), np.asarray(actual[1], float), scores)
        if hint is not None:
            return f"report({np.round(scores, 2).tolist()}): {hint}"
    return None


def _hint(mean: np.ndarray, spread: np.ndarray, scores: np.ndarray) -> str | None:
    sizes = (scores.shape[1],)
    if mean.shape != sizes or spread.shape != sizes:
        return f"shapes are {mean.shape} and {spread.shape}, expected {sizes} twice: one number for each column."
    if not np.allclose(mean, scores.mean(axis=0)):
        best = np.allclose(mean, scores.max(axis=0))
        return "the first array is the best seed of each column." if best else "the first array is not the means."
    if np.allclose(spread, scores.std(axis=0, ddof=1)):
        return None
    if np.allclose(spread, scores.std(axis=0)):
        return "the deviations are a little too small. By what is the sum divided?"
    if np.allclose(spread, scores.var(axis=0, ddof=1)):
        return "the second array is the squares of the deviations."
    if np.allclose(spread, scores.std(axis=0, ddof=1) / np.sqrt(len(scores))):
        return (
            "the second array is the standard errors of the means; the deviations say how far single seeds lie apart."
        )
    return f"the second array begins with {spread[0]:.3f}, expected {scores.std(axis=0, ddof=1)[0]:.3f}."


CHECKS = {"06.1": report}
