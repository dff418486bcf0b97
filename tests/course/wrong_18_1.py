"""Wrong answers to exercise 18.1, each of which the checker must refuse."""

import numpy as np


def bias_on_every_device(x, w1, b1, w2, b2, devices):
    parts = zip(np.split(w1, devices, axis=1), np.split(b1, devices), np.split(w2, devices))
    return [np.maximum(x @ columns + bias, 0) @ rows + b2 for columns, bias, rows in parts]


def bias_forgotten(x, w1, b1, w2, b2, devices):
    parts = zip(np.split(w1, devices, axis=1), np.split(b1, devices), np.split(w2, devices))
    return [np.maximum(x @ columns + bias, 0) @ rows for columns, bias, rows in parts]


def one_device_does_all(x, w1, b1, w2, b2, devices):
    whole = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    return [whole, *(np.zeros_like(whole) for _ in range(devices - 1))]


def each_device_does_a_share_of_all(x, w1, b1, w2, b2, devices):
    whole = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    return [whole / devices for _ in range(devices)]


def rows_first(x, w1, b1, w2, b2, devices):
    columns = np.array_split(np.arange(len(w1)), devices)
    sums = [np.maximum(x[:, own] @ w1[own] + b1 / devices, 0) @ w2 for own in columns]
    return [sums[0] + b2, *sums[1:]]


def outputs_cut(x, w1, b1, w2, b2, devices):
    inner = np.maximum(x @ w1 + b1, 0)
    return [inner @ w2 + b2][:1]
