"""Which tokens of a vocabulary begin a word."""

import string

import numpy as np

from bertzoo.text.tokenizer import Tokenizer

SENTENCE_PIECE, BYTE_LEVEL = "▁", "Ġ"


def word_starts(tokenizer: Tokenizer) -> np.ndarray:
    """bool (vocabulary,): whether a token begins a word.

    WordPiece: all but those that begin with ##. Byte-level BPE: those that begin with a space, as in fairseq.
    SentencePiece: those that begin with ▁, and what ALBERT's code takes as words of their own: punctuation, and pieces
    with other letters than the 26. Special tokens count as words.

    Raises:
        ValueError: The tokens tell of no words.
    """
    tokens = np.array([_token(tokenizer, i) for i in range(tokenizer.vocabulary_size)], dtype=object)
    special = np.isin(np.arange(len(tokens)), tokenizer.special_ids)
    marks = {mark: sum(token.startswith(mark) for token in tokens) for mark in ("##", BYTE_LEVEL, SENTENCE_PIECE)}
    mark = max(marks, key=marks.get)
    if not marks[mark]:
        raise ValueError(f"whole words can't be told: no token begins with {', '.join(marks)}.")
    begins = np.array([token.startswith(mark) for token in tokens])
    if mark == "##":
        return special | ~begins | (tokens == "##")
    if mark == BYTE_LEVEL:
        return special | begins
    english = set(string.ascii_letters)
    return special | begins | np.array([not set(token) <= english for token in tokens])


def _token(tokenizer: Tokenizer, index: int) -> str:
    try:
        return tokenizer.id_to_token(index)
    except ValueError:  # a gap in the ids
        return ""
