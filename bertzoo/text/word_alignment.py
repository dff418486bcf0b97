"""Which tokens belong to which word."""

from typing import NamedTuple

import numpy as np


class WordAlignment(NamedTuple):
    """Which tokens hold which words of a text: `n` groups, each a word, or neighbouring words that share a token.

    Words without tokens are left out. All arrays are int (n, 2), from the first to after the last: `spans` in
    characters, `tokens`, `words`.
    """

    spans: np.ndarray
    tokens: np.ndarray
    words: np.ndarray


def align_words(offsets: np.ndarray, words: np.ndarray) -> WordAlignment:
    """Aligns the words of a text with its tokens.

    Args:
        offsets: int (tokens, 2), the characters of the text's tokens in order.
        words: int (words, 2), the characters of its words.
    """
    if not len(words) or not len(offsets):
        empty = np.zeros((0, 2), dtype=np.int64)
        return WordAlignment(empty, empty, empty)
    # Bytes of one character share its offsets, and a tokenizer may report a token as empty: only the order is sure.
    begins, ends = np.minimum.accumulate(offsets[::-1, 0])[::-1], np.maximum.accumulate(offsets[:, 1])
    first = np.searchsorted(ends, words[:, 0], side="right")
    last = np.searchsorted(begins, words[:, 1], side="left")
    has = np.flatnonzero(last > first)
    first, last = first[has], last[has]
    apart = np.concatenate([[True], first[1:] >= np.maximum.accumulate(last)[:-1]]) if len(has) else np.zeros(0, bool)
    heads = np.flatnonzero(apart)
    tails = np.concatenate([heads[1:], [len(has)]])[: len(heads)] - 1
    return WordAlignment(
        np.stack([words[has[heads], 0], words[has[tails], 1]], axis=1),
        np.stack([first[heads], last[tails]], axis=1),
        np.stack([has[heads], has[tails] + 1], axis=1),
    )
