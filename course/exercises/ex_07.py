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
    more = [(rng.normal(size=(n, k)), 2 * rng.normal(size=(k + 1, k + 1))) for n, k in [(2, 3), (5, 3), (6, 4)] * 4]
    for emissions, transitions in (alone, barred, ends, single, *more):
        hint = _path_hint(answer(emissions.copy(), transitions.copy()), emissions, transitions)
        if hint is not None:
            return f"for {emissions.shape[0]} words and {emissions.shape[1]} labels {hint}{_cause(answer, more)}"
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
    actual, most = _score(emissions, transitions, path), _score(emissions, transitions, best)
    return f"it gives {path} with score {actual:.2f}; {list(best)} has {most:.2f}."


def _cause(answer: Callable, cases: list) -> str:
    """A question that leads on, if the answers are those of a known mistake in all cases, which have no ties."""
    given = [np.asarray(answer(emissions.copy(), transitions.copy())).tolist() for emissions, transitions in cases]
    for mistake, question in MISTAKES:
        made = [mistake(emissions, t[:-1, :-1], t[-1, :-1], t[:-1, -1]) for emissions, t in cases]
        if given == made:
            return f" {question}"
    return ""


def _greedy(emissions: np.ndarray, inner: np.ndarray, begin, end) -> list[int]:
    path = [int((begin + emissions[0]).argmax())]
    for emission in emissions[1:]:
        path.append(int((inner[path[-1]] + emission).argmax()))
    return path


def _best(emissions: np.ndarray, inner: np.ndarray, begin, end) -> list[int]:
    labels = range(len(inner))
    ways = {label: ((begin + emissions[0])[label], [label]) for label in labels}
    for emission in emissions[1:]:
        before = ways
        ways = {}
        for label in labels:
            score, path = max((before[a][0] + inner[a, label], before[a][1]) for a in labels)
            ways[label] = score + emission[label], [*path, label]
    return max((score + (end + 0 * emissions[0])[label], path) for label, (score, path) in ways.items())[1]


BORDERS = "Mind both borders."
MISTAKES = (
    (_greedy, "It is the best step at each word; can a worse one lead to a better whole?"),
    (lambda e, inner, begin, end: _greedy(e, inner, 0, end), "It is the best step at each word. " + BORDERS),
    (lambda e, inner, begin, end: e.argmax(axis=1).tolist(), "Which of the transitions have you used?"),
    (
        lambda e, inner, begin, end: _best(e, inner.T, begin, end),
        "Is a row of the transitions where a step comes from, or where it goes to?",
    ),
    (lambda e, inner, begin, end: _best(e, inner, 0, 0), BORDERS),
    (lambda e, inner, begin, end: _best(e, inner, begin, 0), BORDERS),
    (lambda e, inner, begin, end: _best(e, inner, 0, end), BORDERS),
    (lambda e, inner, begin, end: _best(e, inner, end, begin), BORDERS),
    (lambda e, inner, begin, end: _best(e, inner, begin, end)[::-1], "In which direction does your list run?"),
)


CHECKS = {"07.1": best_path}
