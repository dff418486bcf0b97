"""Logits to probabilities, in NumPy and float64."""

import numpy as np


def softmax(logits, axis: int = -1) -> np.ndarray:
    """The probabilities of classes of which one is right, which add up to 1 along the axis."""
    logits = np.asarray(logits, dtype="float64")
    exponentials = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def sigmoid(logits) -> np.ndarray:
    """The probability of each label for itself."""
    logits = np.asarray(logits, dtype="float64")
    small = np.exp(-np.abs(logits))  # of a large number the exponential is infinite
    return np.where(logits >= 0, 1.0, small) / (1 + small)
