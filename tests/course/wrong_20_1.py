"""Wrong answers to exercise 20.1, each of which the checker must refuse."""

import numpy as np


def other_way(x, positions, theta):
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(half) * 2 / x.shape[-1])
    a, b = x[:, :half], x[:, half:]
    return np.concatenate([a * np.cos(angles) + b * np.sin(angles), b * np.cos(angles) - a * np.sin(angles)], axis=1)


def own_rows(x, positions, theta):
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(half) * 2 / x.shape[-1])
    a, b = x[:, :half], x[:, half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=1)


def neighbours(x, positions, theta):
    angles = positions[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    a, b = x[:, ::2], x[:, 1::2]
    pairs = [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)]
    return np.stack(pairs, axis=2).reshape(x.shape)


def half_the_exponent(x, positions, theta):
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(half) / x.shape[-1])
    a, b = x[:, :half], x[:, half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=1)


def no_rotation(x, positions, theta):
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(half) * 2 / x.shape[-1])
    a, b = x[:, :half], x[:, half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) - a * np.sin(angles)], axis=1)
