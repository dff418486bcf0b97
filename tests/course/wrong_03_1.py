"""Wrong answers to exercise 03.1, each of which the checker must refuse."""

import numpy as np


def no_mask(query, key, lengths):
    scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def no_root(query, key, lengths):
    real = np.arange(key.shape[2]) < np.asarray(lengths)[:, None]
    scores = np.where(real[:, None, None, :], query @ key.swapaxes(2, 3), -1e30)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rows_masked(query, key, lengths):
    scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[-1])
    real = np.arange(key.shape[2]) < np.asarray(lengths)[:, None]
    scores = np.where(real[:, None, :, None], scores, -1e30)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def masked_after_the_softmax(query, key, lengths):
    real = np.arange(key.shape[2]) < np.asarray(lengths)[:, None]
    scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) * real[:, None, None, :]


def keys_look(query, key, lengths):
    real = np.arange(key.shape[2]) < np.asarray(lengths)[:, None]
    scores = key @ query.swapaxes(2, 3) / np.sqrt(query.shape[-1])
    scores = np.where(real[:, None, None, :], scores, -1e30)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def inverted_mask(query, key, lengths):
    real = np.arange(key.shape[2]) >= np.asarray(lengths)[:, None]
    scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[-1])
    scores = np.where(real[:, None, None, :], scores, -1e30)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def overflows(query, key, lengths):
    real = np.arange(key.shape[2]) < np.asarray(lengths)[:, None]
    scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[-1])
    e = np.exp(scores) * real[:, None, None, :]
    return e / e.sum(axis=-1, keepdims=True)


def by_d(query, key, lengths):
    real = np.arange(key.shape[2]) < np.asarray(lengths)[:, None]
    scores = np.where(real[:, None, None, :], query @ key.swapaxes(2, 3) / query.shape[-1], -1e30)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
