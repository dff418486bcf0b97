"""Exercises of notebook 11."""

from collections.abc import Callable

import numpy as np

STEP = 1e-5


def soft_gradient(answer: Callable) -> str | None:
    rng = np.random.default_rng(0)
    for classes, temperature in ((3, 1.0), (4, 2.0), (5, 8.0), (3, 0.5), (6, 3.0)):
        teacher, student = rng.normal(0, 2, (2, classes))
        name = f"{classes} classes, T = {temperature:g}"
        actual = np.asarray(answer(teacher.copy(), student.copy(), temperature))
        if actual.shape != (classes,):
            return f"{name}: the shape is {actual.shape}, expected {(classes,)}, one number for each logit."
        expected = _by_steps(teacher, student, temperature)
        if not np.allclose(actual, expected, atol=1e-4):
            return f"{name}: {_hint(actual, expected)}"
        at_rest = np.asarray(answer(student.copy(), student.copy(), temperature))
        if np.abs(at_rest).max() > 1e-9:
            return f"{name}: where both agree, the gradient is not 0."
    return None


def _loss(teacher: np.ndarray, student: np.ndarray, temperature: float) -> float:
    p, q = (logits / temperature - np.log(np.sum(np.exp(logits / temperature))) for logits in (teacher, student))
    return float(temperature**2 * np.sum(np.exp(p) * (p - q)))


def _by_steps(teacher: np.ndarray, student: np.ndarray, temperature: float) -> np.ndarray:
    steps = STEP * np.eye(len(student))
    up, down = ([_loss(teacher, student + sign * step, temperature) for step in steps] for sign in (1, -1))
    return (np.array(up) - np.array(down)) / (2 * STEP)


def _hint(actual: np.ndarray, expected: np.ndarray) -> str:
    if np.allclose(actual, -expected, atol=1e-4):
        return "your vector points downhill; the gradient points to where the loss grows."
    factor = float(actual @ expected / (expected @ expected))
    if np.allclose(actual, factor * expected, atol=1e-4):
        return f"the direction is right, the length is {factor:.3g} times what small steps give."
    return f"small steps give {np.round(expected, 3).tolist()}, you gave {np.round(actual, 3).tolist()}."


CHECKS = {"11.1": soft_gradient}
