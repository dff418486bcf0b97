"""Which tokens belong to which word."""

from typing import NamedTuple

import numpy as np


class Units(NamedTuple):
    """What is labelled as one: a word, or neighbouring words that share a token. Words without tokens are left out.

    spans: int (units, 2), characters. pieces: int (units, 2), from the first token to after the last. words: int
    (units, 2), from the first word to after the last.
    """

    spans: np.ndarray
    pieces: np.ndarray
    words: np.ndarray


def find_units(offsets: np.ndarray, words: np.ndarray) -> Units:
    """The units of a text.

    Args:
        offsets: int (tokens, 2), the characters of the text's tokens in order.
        words: int (words, 2), the characters of its words.
    """
    if not len(words) or not len(offsets):
        empty = np.zeros((0, 2), dtype=np.int64)
        return Units(empty, empty, empty)
    # Bytes of one character share its offsets, and a tokenizer may report a token as empty: only the order is sure.
    begins, ends = np.minimum.accumulate(offsets[::-1, 0])[::-1], np.maximum.accumulate(offsets[:, 1])
    first = np.searchsorted(ends, words[:, 0], side="right")
    last = np.searchsorted(begins, words[:, 1], side="left")
    has = np.flatnonzero(last > first)
    first, last = first[has], last[has]
    apart = np.concatenate([[True], first[1:] >= np.maximum.accumulate(last)[:-1]]) if len(has) else np.zeros(0, bool)
    heads = np.flatnonzero(apart)
    tails = np.concatenate([heads[1:], [len(has)]])[: len(heads)] - 1
    return Units(
        np.stack([words[has[heads], 0], words[has[tails], 1]], axis=1),
        np.stack([first[heads], last[tails]], axis=1),
        np.stack([has[heads], has[tails] + 1], axis=1),
    )
