"""Wrong answers to exercise 06.1, each of which the checker must refuse."""

import numpy as np


def best_seed(scores):
    return scores.max(axis=0), scores.std(axis=0, ddof=1)


def divided_by_all(scores):
    return scores.mean(axis=0), scores.std(axis=0)


def variance(scores):
    return scores.mean(axis=0), scores.var(axis=0, ddof=1)


def rows_in_place_of_columns(scores):
    return scores.mean(axis=1), scores.std(axis=1)


def range_in_place_of_deviation(scores):
    return scores.mean(axis=0), scores.max(axis=0) - scores.min(axis=0)


def mean_alone(scores):
    return np.asarray(scores).mean(axis=0)


def standard_error(scores):
    return scores.mean(axis=0), scores.std(axis=0, ddof=1) / np.sqrt(len(scores))
