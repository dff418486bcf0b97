"""Exercises of notebook 03."""

from collections.abc import Callable

import numpy as np

SHAPES = ((2, 1, 4, 2, (4, 2)), (3, 2, 5, 8, (1, 5, 3)), (1, 4, 6, 16, (4,)))


def attention_weights(answer: Callable) -> str | None:
    rng = np.random.default_rng(0)
    for batch, heads, length, d, lengths in SHAPES:
        query, key = rng.normal(size=(2, batch, heads, length, d))
        lengths = np.array(lengths)
        hint = _hint(np.asarray(answer(query.copy(), key.copy(), lengths)), query, key, lengths)
        if hint is not None:
            shape = f"{batch} texts, {heads} heads, length {length}, d = {d}"
            return f"attention_weights({shape}, lengths {lengths.tolist()}): {hint}"
    query, key = 100 * rng.normal(size=(2, 1, 1, 4, 64))
    with np.errstate(all="ignore"):
        large = np.asarray(answer(query, key, np.array([3])))
    return None if np.isfinite(large).all() else "right for small scores; for large ones it gives nan. What overflows?"


def _hint(actual: np.ndarray, query: np.ndarray, key: np.ndarray, lengths: np.ndarray) -> str | None:
    batch, heads, length, d = query.shape
    if actual.shape != (batch, heads, length, length):
        return f"the shape is {actual.shape}, expected {(batch, heads, length, length)}."
    real = np.arange(length) < lengths[:, None]
    if not np.isfinite(actual).all():
        return "some weights are not finite numbers."
    if np.abs(np.where(real[:, None, None, :], 0, actual)).max(initial=0) > 1e-6:
        text = int(np.argmax(lengths < length))
        return f"text {text} has {lengths[text]} real words, but later columns have weight. Who is looked at?"
    if not np.allclose(actual.sum(axis=-1), 1):
        return f"a row sums to {actual.sum(axis=-1).min():.2f}, expected 1. Is the mask there before the softmax?"
    if np.allclose(actual, _reference(query, key, real)):
        return None
    if np.allclose(actual, _reference(query * np.sqrt(d), key, real)):
        return "weights are harder than they should be: what becomes of the scores as d grows?"
    if np.allclose(actual, _reference(query / np.sqrt(d), key, real)):
        return f"weights are more even than they should be: the scores are divided by √d = {np.sqrt(d):.3g}, not by d."
    if np.allclose(actual, _reference(key, query, real)):
        return "rows and columns are exchanged: a row is the word that looks, with its query."
    return "rows sum to 1 and padding has none, but the weights differ from softmax of the scaled dot products."


def _reference(query: np.ndarray, key: np.ndarray, real: np.ndarray) -> np.ndarray:
    scores = np.einsum("bhid,bhjd->bhij", query, key) / np.sqrt(query.shape[-1])
    scores = np.where(real[:, None, None, :], scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


CHECKS = {"03.1": attention_weights}
