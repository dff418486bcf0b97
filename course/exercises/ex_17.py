"""Exercises of notebook 17."""

from collections.abc import Callable

import numpy as np


def layers_needed(answer: Callable) -> str | None:
    for name, attend in _cases():
        before = attend.copy()
        found = answer(attend)
        if not np.array_equal(attend, before):
            return f"{name}: your function changed the table that it was given."
        expected = _count(attend)
        if np.ndim(found) or int(found) != found:
            return f"{name}: you gave {found!r}, expected one whole number."
        if found != expected:
            return f"{name}: you gave {int(found)}, it is {expected}. {_hint(expected)}"
    return None


def _cases() -> list[tuple[str, np.ndarray]]:
    place, rng = np.arange(9), np.random.default_rng(0)
    band = np.abs(place[:, None] - place) <= 1
    star = band.copy()
    star[0] = star[:, 0] = True
    islands = (place[:, None] < 4) == (place < 4)
    one_way_ring = np.eye(6, dtype=bool) | np.roll(np.eye(6, dtype=bool), 1, axis=1)
    cases = [
        ("everyone sees everyone", np.ones((4, 4), bool)),
        ("a band of ±1, 9 tokens", band),
        ("the same with a global token", star),
        ("two islands that do not see each other", islands),
        ("left to right, 5 tokens", np.tril(np.ones((5, 5), bool))),
        ("a ring of 6, each sees itself and the next", one_way_ring),
    ]
    for length in (5, 8, 12):
        links = (rng.random((length, length)) < 0.25) | np.eye(length, dtype=bool)
        cases.append((f"random links among {length}", links))
    return cases


def _count(attend: np.ndarray) -> int:
    heard = attend
    for layers in range(1, len(attend) + 1):
        if heard.all():
            return layers
        heard = (heard.astype(int) @ attend.astype(int)) > 0
    return -1


def _hint(expected: int) -> str:
    if expected == -1:
        return "Somebody never hears of somebody, however many layers there are."
    if expected == 1:
        return "One layer is enough where everyone sees everyone."
    return "Follow one token: whom has it heard of after one layer, and after two?"


CHECKS = {"17.1": layers_needed}
