"""Exercises of notebook 13."""

from collections.abc import Callable

import numpy as np

CASES = ((8, 32), (256, 512), (32, 128), (64, 1024))


def log_buckets(answer: Callable) -> str | None:
    for buckets, max_distance in CASES:
        half = buckets // 2
        distances = _distances(half, max_distance)
        call = f"log_buckets(distances, {buckets}, {max_distance})"
        actual = np.asarray(answer(distances.copy(), buckets, max_distance))
        if actual.shape != distances.shape:
            return f"{call}: the shape is {actual.shape}, expected {distances.shape}, one bucket for each distance."
        if not np.issubdtype(actual.dtype, np.integer) and not np.equal(actual, np.round(actual)).all():
            return f"{call}: a bucket is a whole number; not all of these are."
        expected = np.array([_bucket(int(distance), half, max_distance) for distance in distances])
        if (actual == expected).all():
            continue
        wrong = distances[actual != expected]
        first = int(wrong[np.argmin(np.abs(wrong))])
        got = int(actual[distances == first][0])
        return f"{call}: distance {first} gets bucket {got}. {_hint(first, half, max_distance)}"
    return None


def _distances(half: int, max_distance: int) -> np.ndarray:
    """All, but those whose bucket hangs on the last bit of a logarithm."""
    distances = np.arange(1 - max_distance, max_distance)
    far = np.maximum(np.abs(distances), half)
    steps = np.log(far / half) / np.log((max_distance - 1) / half) * (half - 1)
    clear = (np.abs(steps - np.round(steps)) > 1e-6) | (np.abs(distances) <= half)
    return distances[clear | (np.abs(distances) == max_distance - 1)]


def _bucket(distance: int, half: int, max_distance: int) -> int:
    if abs(distance) <= half:
        return distance
    if abs(distance) == max_distance - 1:
        return (2 * half - 1) * (1 if distance > 0 else -1)
    steps = np.log(abs(distance) / half) / np.log((max_distance - 1) / half) * (half - 1)
    return int(np.sign(distance)) * (int(np.ceil(steps)) + half)


def _hint(distance: int, half: int, max_distance: int) -> str:
    if abs(distance) <= half:
        return f"It is within {half}: does it not have a bucket of its own?"
    if distance < 0:
        return f"Is it the mirror image of what distance {-distance} gets?"
    if distance == max_distance - 1:
        return "It is the greatest distance: which bucket is the last?"
    return f"It is beyond {half}: do you scale, round up and shift in the order of the formula?"


CHECKS = {"13.1": log_buckets}
