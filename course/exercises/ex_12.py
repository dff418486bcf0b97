"""Exercises of notebook 12."""

from collections.abc import Callable

import numpy as np


def corrupt(answer: Callable) -> str | None:
    rng = np.random.default_rng(0)
    one = np.array([[2, 7, 8, 9, 3]]), np.array([[2]]), np.array([[True]])
    right_guess, wrong_guess, unused = np.array([[8]]), np.array([[5]]), np.array([[False]])
    cases = [
        (*one, wrong_guess),
        (*one, right_guess),
        (one[0], np.array([[0]]), unused, wrong_guess),
        (np.array([[2, 6, 7, 3, 0, 0]]), np.array([[1, 0]]), np.array([[True, False]]), np.array([[5, 9]])),
    ]
    for _ in range(10):
        ids = rng.integers(5, 9, (3, 6))
        used = rng.random((3, 2)) < 0.7
        places = np.where(used, np.argsort(rng.random((3, 6)), axis=1)[:, :2], 0)
        # A hole at position 0 that is in use and an empty slot there at once would not be a case.
        used &= places > 0
        cases.append((ids, np.where(used, places, 0), used, rng.integers(5, 9, (3, 2))))
    for case in cases:
        hint = _row_hint(answer, *case)
        if hint is not None:
            return hint
    return None


def _row_hint(answer: Callable, ids, positions, used, drawn) -> str | None:
    expected = ids.copy()
    for row, slot in zip(*np.nonzero(used)):
        expected[row, positions[row, slot]] = drawn[row, slot]
    before = ids.copy()
    actual = answer(ids, positions.copy(), used.copy(), drawn.copy())
    case = f"for ids {ids.tolist()}, positions {positions.tolist()}, used {used.tolist()}, drawn {drawn.tolist()}"
    if not isinstance(actual, (tuple, list)) or len(actual) != 2:
        return f"{case} it gives {type(actual).__name__}, expected a pair: ids that are read, and labels."
    if not (ids == before).all():
        return f"{case} your function changes the ids that it was given; the originals are still needed."
    read, labels = map(np.asarray, actual)
    if read.shape != ids.shape or not (read == expected).all():
        return f"{case} the ids read are {read.tolist()}. Which slots are in use?"
    if labels.shape != ids.shape or not (labels == (expected != ids)).all():
        return f"{case} the labels are {labels.astype(int).tolist()}. When is a token called replaced?"
    return None


CHECKS = {"12.1": corrupt}
