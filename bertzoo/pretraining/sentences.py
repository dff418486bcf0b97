"""Where the sentences of a corpus begin and end, told from its tokens."""

from functools import cached_property

import numpy as np
import regex

from bertzoo.pretraining.shards import Shards
from bertzoo.text.tokenizer import Tokenizer

# The marks that end a sentence in any script (Unicode's property Sentence_Terminal: ". ? ! 。 । ؟ …"), with what closes
# a quotation or a bracket after them.
SENTENCE_END = regex.compile(r"\p{Sentence_Terminal}+[\p{Pe}\p{Pf}\"']*")
LONGEST = 126  # tokens: what a row of 128 has room for
TOKENS_AT_ONCE = 2**24


class Sentences:
    """A sentence goes on up to a token that is a mark of a sentence's end in any script, with all such marks that
    follow one another, or to its document's end. One of more than `longest` tokens, as in a log file or a language that
    marks no ends, is cut every `longest` tokens, so that rows may begin there.

    starts, ends: int64 (n,); sentence i is `tokens[starts[i]:ends[i]]`, without the document's separator.
    bounds: int64 (documents + 1,); document d is the sentences `bounds[d]:bounds[d + 1]`. Documents without a word are
        not counted.
    """

    def __init__(self, shards: Shards, longest: int = LONGEST):
        self.shards = shards
        self.starts = _with_cuts(_starts(shards), shards, longest)
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


def end_tokens(tokenizer: Tokenizer) -> list[int]:
    """The ids of the tokens that end a sentence."""
    ids = sorted(tokenizer.vocabulary.values())
    texts = tokenizer.decode([[i] for i in ids])  # without special tokens
    return [i for i, text in zip(ids, texts) if SENTENCE_END.fullmatch(text.strip())]


def _with_cuts(starts: np.ndarray, shards: Shards, longest: int) -> np.ndarray:
    """Starts with more of them inside sentences that are longer than `longest` tokens."""
    # A document's separator is its last token, in which no sentence goes on.
    borders = np.append(starts, len(shards.tokens))
    ends = shards.documents[np.searchsorted(shards.documents, starts, "right")] - 1
    sizes = np.minimum(borders[1:], ends) - starts
    pieces = np.maximum(1, -(-sizes // longest))
    first = np.cumsum(pieces) - pieces
    within = np.arange(pieces.sum()) - np.repeat(first, pieces)
    return np.repeat(starts, pieces) + within * longest


def _starts(shards: Shards) -> np.ndarray:
    closing = np.array([*end_tokens(shards.tokenizer), shards.tokenizer.sep_id], shards.tokens.dtype)
    found, before = [np.zeros(0, np.int64)], True
    for first in range(0, len(shards.tokens), TOKENS_AT_ONCE):
        closes = np.isin(shards.tokens[first : first + TOKENS_AT_ONCE], closing)
        after = np.concatenate([[before], closes[:-1]])
        found.append(np.flatnonzero(after & ~closes) + first)
        before = closes[-1]
    return np.concatenate(found)
