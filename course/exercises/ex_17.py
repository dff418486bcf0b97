"""Exercises of notebook 17."""

from collections.abc import Callable

import numpy as np


def layers_needed(answer: Callable) -> str | None:
    for name, attention_mask in _cases():
        before = attention_mask.copy()
        actual = answer(attention_mask)
        if not np.array_equal(attention_mask, before):
            return f"{name}: your function changed the table that it was given."
        expected = _count(attention_mask)
        if np.ndim(actual) or int(actual) != actual:
            return f"{name}: you gave {actual!r}, expected one whole number."
        if actual != expected:
            return f"{name}: you gave {int(actual)}, it is {expected}. {_hint(expected)}"
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


def _count(attention_mask: np.ndarray) -> int:
    heard = attention_mask
    for layers in range(1, len(attention_mask) + 1):
        if heard.all():
            return layers
        heard = (heard.astype(int) @ attention_mask.astype(int)) > 0
    return -1


def _hint(expected: int) -> str:
    if expected == -1:
        return "Somebody never hears of somebody, however many layers there are."
    if expected == 1:
        return "One layer is enough where everyone sees everyone."
    return "Follow one token: whom has it heard of after one layer, and after two?"


CHECKS = {"17.1": layers_needed}
