"""Logistic regression of several classes, by limited-memory BFGS (Liu and Nocedal 1989), in float64."""

from collections import deque
from dataclasses import dataclass

import numpy as np

MEMORY, STEPS, TOLERANCE = 10, 500, 1e-6


@dataclass(frozen=True)
class Logistic:
    """softmax((x - mean) / spread · weights + bias). weights: (width, classes)."""

    mean: np.ndarray
    spread: np.ndarray
    weights: np.ndarray
    bias: np.ndarray

    @classmethod
    def fit(cls, x: np.ndarray, classes: np.ndarray, number: int, decay: float = 1.0) -> "Logistic":
        """The minimum of the sum of -log probabilities + decay / 2 · the squared size of the weights, where the columns
        of x have mean 0 and variance 1.

        Args:
            x: (n, width).
            classes: int (n,), from 0.
            number: How many classes there are.
            decay: The penalty.
        """
        x = np.asarray(x, "float64")
        mean, spread = x.mean(axis=0), x.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        x = np.concatenate([(x - mean) / spread, np.ones((len(x), 1))], axis=1)
        target = np.eye(number)[classes]
        free = np.append(np.full(x.shape[1] - 1, decay), 0.0)[:, None] / len(x)

        def loss(flat):
            weights = flat.reshape(-1, number)
            logits = x @ weights
            logits -= logits.max(axis=1, keepdims=True)
            logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            value = -(target * logs).sum() / len(x) + 0.5 * (free * weights**2).sum()
            return value, (x.T @ (np.exp(logs) - target) / len(x) + free * weights).ravel()

        weights = _minimum(loss, np.zeros(x.shape[1] * number)).reshape(-1, number)
        return cls(mean, spread, weights[:-1], weights[-1])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The likeliest class of each row: int (n,)."""
        return (((np.asarray(x, "float64") - self.mean) / self.spread) @ self.weights + self.bias).argmax(axis=1)


def _minimum(loss, place: np.ndarray) -> np.ndarray:
    value, slope = loss(place)
    past: deque = deque(maxlen=MEMORY)
    for _ in range(STEPS):
        if np.abs(slope).max() < TOLERANCE:
            break
        way = -_curved(slope, past)
        size = 1.0 if past else 1.0 / max(1.0, np.linalg.norm(slope))
        while True:
            new_value, new_slope = loss(place + size * way)
            if new_value <= value + 1e-4 * size * (slope @ way) or size < 1e-10:
                break
            size /= 2
        moved, bent = size * way, new_slope - slope
        if moved @ bent > 1e-12:
            past.append((moved, bent))
        place, value, slope = place + moved, new_value, new_slope
    return place


def _curved(slope: np.ndarray, past: deque) -> np.ndarray:
    """The slope times an estimate of the inverse of the second derivatives: their two-loop recursion."""
    way, shares = slope.copy(), []
    for moved, bent in reversed(past):
        shares.append((moved @ way) / (moved @ bent))
        way -= shares[-1] * bent
    if past:
        moved, bent = past[-1]
        way *= (moved @ bent) / (bent @ bent)
    for (moved, bent), share in zip(past, reversed(shares)):
        way += moved * (share - (bent @ way) / (moved @ bent))
    return way
