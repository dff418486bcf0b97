"""Wrong answers to exercise 01.1, each of which the checker must refuse."""

import numpy as np


def causal_without_prefix(length, prefix):
    return np.tril(np.ones((length, length), bool))


def everyone(length, prefix):
    return np.ones((length, length), bool)


def rows_and_columns_swapped(length, prefix):
    row, column = np.arange(length)[:, None], np.arange(length)[None, :]
    return (row <= column) | (row < prefix)


def prefix_one_too_long(length, prefix):
    row, column = np.arange(length)[:, None], np.arange(length)[None, :]
    return (column <= row) | (column <= prefix)


def not_itself(length, prefix):
    row, column = np.arange(length)[:, None], np.arange(length)[None, :]
    return (column < row) | (column < prefix)


def prefix_sees_the_answer(length, prefix):
    row, column = np.arange(length)[:, None], np.arange(length)[None, :]
    return (column <= row) | (row < prefix)


def numbers_in_place_of_truth(length, prefix):
    row, column = np.arange(length)[:, None], np.arange(length)[None, :]
    return ((column <= row) | (column < prefix)).astype("float32")
