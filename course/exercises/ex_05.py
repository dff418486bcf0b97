"""Exercises of notebook 05."""

from collections.abc import Callable

import numpy as np


def wave_positions(answer: Callable) -> str | None:
    for length, width in ((3, 2), (6, 8), (40, 64)):
        actual = np.asarray(answer(length, width))
        hint = _hint(actual, length, width)
        if hint is not None:
            return f"wave_positions({length}, {width}): {hint}"
    return None


def _hint(actual: np.ndarray, length: int, width: int) -> str | None:
    if actual.shape != (length, width):
        return f"the shape is {actual.shape}, expected {(length, width)}."
    if not np.allclose(actual[0], np.tile([0, 1], width // 2)):
        row = np.round(actual[0, :4], 2).tolist()
        return f"row 0 is {row} …; what are the sine and the cosine of 0, and where do they stand?"
    if not np.allclose(actual[:, 0], np.sin(np.arange(length))):
        return "column 0 is not the sine of the position, in radians. Do positions count from 0?"
    for column in range(width):
        power = (column - column % 2) / width
        wave = (np.cos if column % 2 else np.sin)(np.arange(length) / 10000**power)
        if not np.allclose(actual[:, column], wave):
            return f"column {column}, row 1 is {actual[1, column]:.4f}, expected {wave[1]:.4f}."
    return None


CHECKS = {"05.1": wave_positions}
