"""The words of a text, and which tokens belong to which word."""

import re
import unicodedata
from typing import NamedTuple

import numpy as np

# Scripts that are written without spaces: each character, with its marks, is a word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana, ideographs
)
_CHUNK = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")


def find_word_spans(text: str) -> np.ndarray:
    """The words of a text, int64 (words, 2): word i is `text[a:b]`.

    As in the corpora that people label: what stands between spaces, except that punctuation at either end is a word of
    its own ("(U.S.-based)," gives "(", "U.S.-based", ")" and ","; "..." is one). Where a script has no spaces, every
    character is a word.
    """
    spans: list[tuple[int, int]] = []
    for match in _CHUNK.finditer(text):
        begin, end = match.span()
        after = _past_marks(text, begin, end)
        if after > begin and spans and spans[-1][1] == begin:  # marks belong to the character before
            spans[-1] = (spans[-1][0], after)
            begin = after
        if begin < end:
            spans += _peel(text, begin, end)
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def _peel(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    inner = [i for i in range(begin, end) if text[i].isalnum()]
    if not inner:
        return _runs(text, begin, end)
    first, last = inner[0], _past_marks(text, inner[-1] + 1, end)
    return [*_runs(text, begin, first), (first, last), *_runs(text, last, end)]


def _past_marks(text: str, begin: int, end: int) -> int:
    """The place after the accents and vowel signs that stand at `begin`."""
    while begin < end and unicodedata.category(text[begin]).startswith("M"):
        begin += 1
    return begin


def _runs(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Punctuation mark by mark, repeated ones together; symbols that stand together stay so (emoji are sequences)."""
    cuts = [begin]
    for i in range(begin + 1, end):
        marks = any(unicodedata.category(text[j]).startswith("P") for j in (i - 1, i))
        if marks and text[i] != text[i - 1]:
            cuts.append(i)
    return list(zip(cuts, [*cuts[1:], end])) if begin < end else []


class WordAlignment(NamedTuple):
    """Which tokens hold which words of a text: `n` groups, each a word, or neighbouring words that share a token.

    Words without tokens are left out. All arrays are int (n, 2), from the first to after the last: `spans` in
    characters, `tokens`, `words`.
    """

    spans: np.ndarray
    tokens: np.ndarray
    words: np.ndarray


def align_words(token_offsets: np.ndarray, word_offsets: np.ndarray) -> WordAlignment:
    """Aligns the words of a text with its tokens.

    Args:
        token_offsets: int (tokens, 2), the characters of the text's tokens in order.
        word_offsets: int (words, 2), the characters of its words.
    """
    if not len(word_offsets) or not len(token_offsets):
        empty = np.zeros((0, 2), dtype=np.int64)
        return WordAlignment(empty, empty, empty)
    # Bytes of one character share its offsets, and a tokenizer may report a token as empty: only the order is sure.
    begins, ends = np.minimum.accumulate(token_offsets[::-1, 0])[::-1], np.maximum.accumulate(token_offsets[:, 1])
    first = np.searchsorted(ends, word_offsets[:, 0], side="right")
    last = np.searchsorted(begins, word_offsets[:, 1], side="left")
    has = np.flatnonzero(last > first)
    first, last = first[has], last[has]
    apart = np.concatenate([[True], first[1:] >= np.maximum.accumulate(last)[:-1]]) if len(has) else np.zeros(0, bool)
    heads = np.flatnonzero(apart)
    tails = np.concatenate([heads[1:], [len(has)]])[: len(heads)] - 1
    return WordAlignment(
        np.stack([word_offsets[has[heads], 0], word_offsets[has[tails], 1]], axis=1),
        np.stack([first[heads], last[tails]], axis=1),
        np.stack([has[heads], has[tails] + 1], axis=1),
    )
