"""Logits to probabilities, in NumPy and float64, and their calibration: temperature and thresholds."""

import numpy as np

from bertzoo.types import Tensor

ABSENT = -1e9  # the logit of what cannot be chosen


def softmax(logits: Tensor, axis: int = -1) -> np.ndarray:
    """The probabilities of exclusive classes, which add up to 1 along the axis."""
    logits = np.asarray(logits, dtype="float64")
    exponentials = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def sigmoid(logits: Tensor) -> np.ndarray:
    """The independent probability of each label."""
    logits = np.asarray(logits, dtype="float64")
    small = np.exp(-np.abs(logits))  # of a large number the exponential is infinite
    return np.where(logits >= 0, 1.0, small) / (1 + small)


def best_temperature(logits: np.ndarray, targets: np.ndarray) -> float:
    """The number by which to divide logits so that held-out targets are likeliest (Guo et al. 2017, section 4.2).

    Args:
        logits: float (n, labels).
        targets: int (n,) classes; or 0 and 1 (n, labels) for several labels at once.

    Raises:
        ValueError: There are no rows.
    """
    logits, targets = np.asarray(logits, dtype="float64"), np.asarray(targets)
    if not len(logits):
        raise ValueError("a temperature needs held-out rows.")

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        if targets.ndim == 2:
            return float((np.logaddexp(0, scaled) - targets * scaled).mean())
        best = scaled.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(scaled - best).sum(axis=1)) + best[:, 0]
        return float((log_sum - scaled[np.arange(len(scaled)), targets]).mean())

    # The loss has one minimum in 1 / temperature, and so in its logarithm: golden sections find it.
    low, high, ratio = np.log(0.01), np.log(100.0), (np.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if loss(left) <= loss(right) else (left, high)
    return float(np.exp((low + high) / 2))


def best_thresholds(scores: np.ndarray, targets: np.ndarray) -> list[float]:
    """For each label the threshold on its probability with the best F1 on held-out rows; 0.5 for a label that no row
    has.

    Args:
        scores: float (n, labels), probabilities.
        targets: 0 and 1 (n, labels).
    """
    thresholds = []
    for column, truth in zip(np.asarray(scores, dtype="float64").T, np.asarray(targets).T > 0):
        order = np.argsort(-column, kind="stable")
        values, right = column[order], np.cumsum(truth[order])
        f1 = 2 * right / (np.arange(1, len(values) + 1) + truth.sum())
        ends = np.append(values[1:] < values[:-1], True)  # rows of one score are taken together
        index = int(np.argmax(np.where(ends, f1, -1)))
        below = values[index + 1] if index + 1 < len(values) else min(0.0, values[index] - 1.0)
        thresholds.append(float((values[index] + below) / 2) if truth.any() else 0.5)
    return thresholds
