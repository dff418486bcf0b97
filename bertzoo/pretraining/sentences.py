"""Where the sentences of a corpus begin and end, told from its tokens."""

from functools import cached_property

import numpy as np

from bertzoo.pretraining.shards import Shards

SENTENCE_ENDS = (".", "?", "!")
TOKENS_AT_ONCE = 2**24


class Sentences:
    """A sentence goes on up to ".", "?" or "!", with all such marks that follow one another, or to its document's end.

    starts, ends: int64 (n,); sentence i is `tokens[starts[i]:ends[i]]`, without the document's separator.
    bounds: int64 (documents + 1,); document d is the sentences `bounds[d]:bounds[d + 1]`. Documents without a word are
        not counted.
    """

    def __init__(self, shards: Shards):
        self.shards = shards
        self.starts = _starts(shards)
        self.bounds = np.unique(np.searchsorted(self.starts, shards.documents))

    @cached_property
    def ends(self) -> np.ndarray:
        ends = np.append(self.starts[1:], len(self.shards.tokens))
        closing = self.bounds[1:] - 1
        documents = self.shards.documents
        ends[closing] = documents[np.searchsorted(documents, self.starts[closing], "right")] - 1
        return ends

    @cached_property
    def followed(self) -> np.ndarray:
        """The sentences that another of their document follows, int64, ascending."""
        return np.flatnonzero(self.ends[:-1] == self.starts[1:])

    def document(self, sentences: np.ndarray) -> np.ndarray:
        """The numbers of the documents in which sentences stand."""
        return np.searchsorted(self.bounds, sentences, "right") - 1


def _starts(shards: Shards) -> np.ndarray:
    marks = [shards.tokenizer.token_to_id(mark) for mark in SENTENCE_ENDS]
    closing = [mark for mark in marks if mark is not None] + [shards.tokenizer.sep_id]
    closing = np.array(closing, shards.tokens.dtype)
    found, before = [np.zeros(0, np.int64)], True
    for first in range(0, len(shards.tokens), TOKENS_AT_ONCE):
        closes = np.isin(shards.tokens[first : first + TOKENS_AT_ONCE], closing)
        after = np.concatenate([[before], closes[:-1]])
        found.append(np.flatnonzero(after & ~closes) + first)
        before = closes[-1]
    return np.concatenate(found)
