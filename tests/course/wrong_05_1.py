"""Wrong answers to exercise 05.1, each of which the checker must refuse."""

import numpy as np


def halves_in_place_of_turns(length, width):
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def positions_from_one(length, width):
    angle = np.arange(1, length + 1)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, width)


def cosine_first(length, width):
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1).reshape(length, width)


def waves_all_different(length, width):
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(width) / width)
    return np.where(np.arange(width) % 2, np.cos(angle), np.sin(angle))


def transposed(length, width):
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, width).T
