"""Wrong answers to exercise 16.1, each of which the checker must refuse."""

import numpy as np


def padding_counts(weights, real, column):
    others = np.arange(len(real)) != column
    return weights[:, others, column].mean(axis=1)


def itself_counts(weights, real, column):
    return weights[:, real, column].mean(axis=1)


def what_the_column_looks_at(weights, real, column):
    others = real & (np.arange(len(real)) != column)
    return weights[:, column, others].mean(axis=1)


def sum_in_place_of_mean(weights, real, column):
    others = real & (np.arange(len(real)) != column)
    return weights[:, others, column].sum(axis=1)


def mean_over_all_rows(weights, real, column):
    others = real & (np.arange(len(real)) != column)
    return weights[:, others, column].sum(axis=1) / len(real)


def one_number_for_all_heads(weights, real, column):
    others = real & (np.arange(len(real)) != column)
    return weights[:, others, column].mean()
