"""Exercises of notebook 04."""

from collections.abc import Callable

import numpy as np

CASES = (
    ([-1, 0, 1, 2, 3, 3, 3, 4, -1], 3),
    ([-1, 0, 0, 0, 0, 1, 1, 2, -1, -1], 2),
    ([-1, 0, 0, 0, 1, 1, 1, -1], 2),
    ([-1, 0, 1, 2, 3, 4, 5, -1, 6, 7, -1], 4),
)


def choose_words(answer: Callable) -> str | None:
    for word_ids, budget in CASES:
        word_ids = np.array(word_ids)
        union = np.zeros(len(word_ids), bool)
        for seed in range(60):
            chosen = np.asarray(answer(word_ids.copy(), budget, np.random.default_rng(seed)))
            hint = _hint(chosen, word_ids, budget)
            if hint is not None:
                return f"choose_words({word_ids.tolist()}, {budget}, rng): {hint}"
            union |= chosen
        hint = _variety(union, word_ids, budget)
        if hint is not None:
            return f"choose_words({word_ids.tolist()}, {budget}, rng), 60 times: {hint}"
    return None


def _hint(chosen: np.ndarray, word_ids: np.ndarray, budget: int) -> str | None:
    if chosen.shape != word_ids.shape or chosen.dtype != bool:
        return f"got {chosen.dtype} of shape {chosen.shape}, expected bool {word_ids.shape}: True at chosen tokens."
    if (chosen & (word_ids < 0)).any():
        return f"token {int(np.argmax(chosen & (word_ids < 0)))} is special and was chosen."
    sizes = {int(word): int((word_ids == word).sum()) for word in np.unique(word_ids) if word >= 0}
    for word, size in sizes.items():
        taken = int(chosen[word_ids == word].sum())
        if 0 < taken < size:
            return f"{taken} of the {size} pieces of word {word} were chosen."
    if chosen.sum() > budget:
        return f"{int(chosen.sum())} tokens were chosen."
    for word, size in sizes.items():
        if not chosen[word_ids == word].any() and chosen.sum() + size <= budget:
            return f"only {int(chosen.sum())} tokens were chosen, and word {word} of {size} would still have fitted."
    return None


def _variety(union: np.ndarray, word_ids: np.ndarray, budget: int) -> str | None:
    for word in np.unique(word_ids[word_ids >= 0]):
        if (word_ids == word).sum() <= budget and not union[word_ids == word].any():
            return f"word {int(word)} was never chosen. Is the order random?"
    return None


CHECKS = {"04.1": choose_words}
