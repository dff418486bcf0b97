"""Exercises of notebook 14."""

from collections.abc import Callable

import numpy as np


def grow_table(answer: Callable) -> str | None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(6, 3))
    cases = [
        ("one word of pieces 1 and 4", [[1, 4]]),
        ("two words, of pieces 2, 3, 5 and of piece 0", [[2, 3, 5], [0]]),
        ("a word with piece 2 twice and piece 4", [[2, 2, 4]]),
        ("a word without pieces", [[]]),
        ("no words", []),
    ]
    for name, pieces in cases:
        before = table.copy()
        actual = np.asarray(answer(table, pieces))
        if not np.array_equal(table, before):
            return f"{name}: your function changed the table that it was given."
        shape = (len(table) + len(pieces), 3)
        if actual.shape != shape:
            return f"{name}: the shape is {actual.shape}, expected {shape}."
        if not np.allclose(actual[: len(table)], table):
            return f"{name}: the rows of the old tokens are not what they were."
        for row, word in zip(actual[len(table) :], pieces):
            expected = table[word].mean(axis=0) if word else table.mean(axis=0)
            if not np.allclose(row, expected):
                return f"{name}: the new row is {np.round(row, 2).tolist()}, {_hint(table, row, word)}"
    return None


def _hint(table: np.ndarray, row: np.ndarray, word: list[int]) -> str:
    if not np.isfinite(row).all():
        return "which is not finite: what is the mean of nothing?"
    if not word:
        return "expected the mean of all old rows, since there are no pieces."
    if np.allclose(row, table[word].sum(axis=0)):
        return "which is longer than any piece of it: is it a mean?"
    return f"expected {np.round(table[word].mean(axis=0), 2).tolist()}."


CHECKS = {"14.1": grow_table}
