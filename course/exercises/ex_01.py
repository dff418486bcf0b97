"""Exercises of notebook 01."""

from collections.abc import Callable

import numpy as np


def prefix_mask(answer: Callable) -> str | None:
    cases = [(4, 2), (5, 0), (3, 3), *map(tuple, np.random.default_rng(0).integers(1, 9, (8, 2)).tolist())]
    for length, prefix in cases:
        prefix = min(prefix, length)
        hint = _table_hint(np.asarray(answer(length, prefix)), length, prefix)
        if hint is not None:
            return f"prefix_mask({length}, {prefix}): {hint}"
    return None


def _table_hint(mask: np.ndarray, length: int, prefix: int) -> str | None:
    if mask.shape != (length, length):
        return f"the shape is {mask.shape}, expected {(length, length)}: rows look, columns are looked at."
    if mask.dtype != bool and not (mask.dtype.kind in "iu" and np.isin(mask, (0, 1)).all()):
        return f"the type is {mask.dtype}, expected bool, or whole numbers that are 0 and 1."
    for i in range(length):
        for j in range(length):
            inside = f"position {i} is {'in' if i < prefix else 'after'} the prefix"
            if i == j and not mask[i, j]:
                return f"position {i} cannot see itself."
            if j < i and not mask[i, j]:
                return f"position {i} cannot see position {j}, which comes before it. Is a row who looks?"
            if j > i and bool(mask[i, j]) != (j < prefix):
                sees = "sees" if mask[i, j] else "does not see"
                return f"{inside} and {sees} position {j}. Which later ones may it see?"
    return None


CHECKS = {"01.1": prefix_mask}
