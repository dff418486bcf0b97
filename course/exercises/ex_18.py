"""Exercises of notebook 18."""

from collections.abc import Callable

import numpy as np


def partial_sums(answer: Callable) -> str | None:
    for width, inner, devices, seed in ((2, 4, 2, 0), (3, 8, 4, 1), (4, 6, 3, 2), (2, 5, 1, 3)):
        rng = np.random.default_rng(seed)
        shapes = ((3, width), (width, inner), (inner,), (inner, width), (width,))
        arrays = [rng.normal(size=shape) for shape in shapes]
        hint = _whole_hint(answer, arrays, devices) or _own_hint(answer, arrays, devices)
        if hint is not None:
            return f"width {width}, inner width {inner}, {devices} devices: {hint}"
    return None


def _network(x, w1, b1, w2, b2):
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def _whole_hint(answer: Callable, arrays: list[np.ndarray], devices: int) -> str | None:
    parts = [np.asarray(part) for part in answer(*arrays, devices)]
    expected = _network(*arrays)
    if len(parts) != devices:
        return f"there are {len(parts)} parts, expected one for each device."
    if any(part.shape != expected.shape for part in parts):
        return f"the shapes are {[part.shape for part in parts]}; each device makes {expected.shape}."
    gap = sum(parts) - expected
    if np.abs(gap).max() < 1e-9:
        return None
    bias = arrays[-1]
    times = np.round((gap / bias).mean(), 6)
    if np.allclose(gap, times * bias):
        return f"the sum holds b2 {times + 1:g} times, expected once."
    return f"the first row of the sum is off by {gap[0].round(3).tolist()}."


def _own_hint(answer: Callable, arrays: list[np.ndarray], devices: int) -> str | None:
    """Each device may read its own part alone: another part of w1, b1 and w2 must not change what it makes."""
    before = [np.asarray(part) for part in answer(*arrays, devices)]
    x, w1, b1, w2, b2 = (array.copy() for array in arrays)
    size = len(b1) // devices
    w1[:, -size:], b1[-size:], w2[-size:] = w1[:, -size:] + 1, b1[-size:] + 1, w2[-size:] + 1
    after = [np.asarray(part) for part in answer(x, w1, b1, w2, b2, devices)]
    for device in range(devices - 1):
        if not np.allclose(before[device], after[device]):
            return f"device {device} reads the part of w1, b1 and w2 that belongs to device {devices - 1}."
    if np.allclose(before[-1], after[-1]):
        return f"device {devices - 1} does not read its own part of w1, b1 and w2."
    return None


CHECKS = {"18.1": partial_sums}
