"""Wrong answers to exercise 12.1, each of which the checker must refuse."""

import numpy as np


def all_slots(ids, positions, used, drawn):
    read = ids.copy()
    np.put_along_axis(read, positions, drawn, axis=1)
    return read, (read != ids).astype(int)


def holes_are_replaced(ids, positions, used, drawn):
    read, labels = ids.copy(), np.zeros_like(ids)
    row, slot = np.nonzero(used)
    read[row, positions[row, slot]] = drawn[row, slot]
    labels[row, positions[row, slot]] = 1
    return read, labels


def in_place(ids, positions, used, drawn):
    original = ids.copy()
    row, slot = np.nonzero(used)
    ids[row, positions[row, slot]] = drawn[row, slot]
    return ids, (ids != original).astype(int)


def labels_upside_down(ids, positions, used, drawn):
    read = ids.copy()
    row, slot = np.nonzero(used)
    read[row, positions[row, slot]] = drawn[row, slot]
    return read, (read == ids).astype(int)


def labels_of_slots(ids, positions, used, drawn):
    read = ids.copy()
    row, slot = np.nonzero(used)
    read[row, positions[row, slot]] = drawn[row, slot]
    return read, (np.take_along_axis(ids, positions, axis=1) != drawn).astype(int)


def without_labels(ids, positions, used, drawn):
    read = ids.copy()
    row, slot = np.nonzero(used)
    read[row, positions[row, slot]] = drawn[row, slot]
    return read
