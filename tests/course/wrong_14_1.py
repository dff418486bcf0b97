"""Wrong answers to exercise 14.1, each of which the checker must refuse."""

import numpy as np


def sums(table, pieces):
    rows = [table[word].sum(axis=0) if word else table.mean(axis=0) for word in pieces]
    return np.vstack([table, *rows])


def first_pieces(table, pieces):
    rows = [table[word[0]] if word else table.mean(axis=0) for word in pieces]
    return np.vstack([table, *rows])


def always_the_mean_of_all(table, pieces):
    return np.vstack([table, *[table.mean(axis=0) for _ in pieces]])


def zeros_for_new_words(table, pieces):
    return np.vstack([table, np.zeros((len(pieces), table.shape[1]))])


def each_piece_once(table, pieces):
    rows = [table[sorted(set(word))].mean(axis=0) if word else table.mean(axis=0) for word in pieces]
    return np.vstack([table, *rows])


def new_rows_in_front(table, pieces):
    rows = [table[word].mean(axis=0) if word else table.mean(axis=0) for word in pieces]
    return np.vstack([*rows, table])
