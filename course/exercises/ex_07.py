"""Exercises of notebook 07."""

from collections.abc import Callable
from itertools import product

import numpy as np


def best_path(answer: Callable) -> str | None:
    rng = np.random.default_rng(0)
    # A case without transitions, one that forbids a step, one where only the border decides; then any.
    alone = np.array([[0.0, 2.0], [3.0, 1.0], [0.0, 1.0]]), np.zeros((3, 3))
    barred = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, -1e4, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    ends = np.zeros((2, 2)), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 5.0], [3.0, 0.0, 0.0]])
    single = np.array([[0.5, 0.0, 0.2]]), rng.normal(size=(4, 4))
    several = [(rng.normal(size=(n, k)), 2 * rng.normal(size=(k + 1, k + 1))) for n, k in [(2, 3), (5, 3), (6, 4)] * 4]
    for emissions, transitions in (alone, barred, ends, single, *several):
        hint = _path_hint(answer(emissions.copy(), transitions.copy()), emissions, transitions)
        if hint is not None:
            return f"for {emissions.shape[0]} words and {emissions.shape[1]} labels {hint}"
    return None


def _score(emissions: np.ndarray, transitions: np.ndarray, path) -> float:
    steps = sum(transitions[a, b] for a, b in zip((-1, *path), (*path, -1)))
    return float(steps + sum(emissions[i, label] for i, label in enumerate(path)))


def _path_hint(path, emissions: np.ndarray, transitions: np.ndarray) -> str | None:
    words, labels = emissions.shape
    path = np.asarray(path).tolist()
    if not isinstance(path, list) or len(path) != words:
        return f"it gives {path!r:.60}, expected a list of {words} labels, one a word."
    if not all(isinstance(label, int) and 0 <= label < labels for label in path):
        return f"it gives {path!r:.60}, expected whole numbers from 0 to {labels - 1}; the border is no label."
    best = max(product(range(labels), repeat=words), key=lambda p: _score(emissions, transitions, p))
    if path == list(best):
        return None
    found, most = _score(emissions, transitions, path), _score(emissions, transitions, best)
    return f"it gives {path} with score {found:.2f}; {list(best)} has {most:.2f}. Mind both borders."


CHECKS = {"07.1": best_path}
