"""Exercises of notebook 20."""

from collections.abc import Callable

import numpy as np


def turn(answer: Callable) -> str | None:
    rng = np.random.default_rng(0)
    for d, positions, theta in ((2, [0, 1], 10.0), (8, [5, 0, 3, 700], 10_000.0), (64, [*range(9)], 160_000.0)):
        x = rng.normal(size=(len(positions), d))
        said = np.asarray(answer(x.copy(), np.array(positions), theta))
        hint = _hint(said, x, positions, theta)
        if hint is not None:
            return f"turn(x of shape {x.shape}, positions {positions}, theta {theta:g}): {hint}"
    return None


def _hint(said: np.ndarray, x: np.ndarray, positions: list[int], theta: float) -> str | None:
    if said.shape != x.shape:
        return f"the shape is {said.shape}, expected {x.shape}."
    d = x.shape[1]
    if np.allclose(said, _turned(x, positions, theta)):
        return None
    if not np.allclose(np.linalg.norm(said, axis=1), np.linalg.norm(x, axis=1)):
        return "a rotation keeps the length of a vector, and here it changes. One of the four signs and factors is off."
    if np.allclose(said, _turned(x, [-p for p in positions], theta)):
        return "the vectors are turned the other way."
    if np.allclose(said, _turned(x, list(range(len(positions))), theta)):
        return "row i is turned as if it stood at position i. Where do the rows stand?"
    if np.allclose(said, _turned(x, positions, theta, power=1)):
        return "the exponents are −i/d; the paper's are −2i/d."
    order = np.arange(d).reshape(-1, 2).T.ravel()
    if np.allclose(said[:, order], _turned(x[:, order], positions, theta)):
        return "neighbours are turned together; the pairs asked for are (i, i + d/2)."
    return "lengths are kept, but the vectors are not those of the formula."


def _turned(x: np.ndarray, positions: list[int], theta: float, power: int = 2) -> np.ndarray:
    """By multiplication of complex numbers."""
    half = x.shape[1] // 2
    numbers = x[:, :half] + 1j * x[:, half:]
    numbers = numbers * np.exp(1j * np.outer(positions, theta ** (-power * np.arange(half) / x.shape[1])))
    return np.concatenate([numbers.real, numbers.imag], axis=1)


CHECKS = {"20.1": turn}
