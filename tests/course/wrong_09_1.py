"""Wrong answers to exercise 09.1, each of which the checker must refuse."""

import numpy as np


def mean_of_means(gradients, holes):
    return np.nanmean(gradients, axis=0) if np.any(holes) else np.zeros(np.shape(gradients)[1:])


def sum_only(gradients, holes):
    return sum((g * n for g, n in zip(gradients, holes) if n), np.zeros(np.shape(gradients)[1:]))


def sum_of_means(gradients, holes):
    return np.nansum(gradients, axis=0)


def divides_by_batches(gradients, holes):
    return sum((g * n for g, n in zip(gradients, holes) if n), np.zeros(np.shape(gradients)[1:])) / len(holes)


def empty_batches_poison(gradients, holes):
    return np.tensordot(np.asarray(holes, float), gradients, 1) / max(1, np.sum(holes))


def last_batch(gradients, holes):
    return gradients[-1]


def one_number(gradients, holes):
    return float(np.nansum(gradients)) / max(1, np.sum(holes))
