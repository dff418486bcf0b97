"""A corpus as one memory-mapped array of token ids, its documents, and its sentences."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import regex

from bertzoo.checkpoints.saving import recover
from bertzoo.text.tokenizer import Tokenizer

NGRAM, SAMPLED = 13, 10_000  # tokens, as in Brown et al. 2020, appendix C; samples of the held-out text
# The punctuation that ends a sentence in any script (Unicode's property Sentence_Terminal: ". ? ! 。 । ؟ …"), with
# closing quotation marks and brackets.
SENTENCE_END = regex.compile(r"\p{Sentence_Terminal}+[\p{Pe}\p{Pf}\"']*")
LONGEST = 126  # tokens of an example of 128
TOKENS_AT_ONCE = 2**24


@dataclass(frozen=True)
class TokenCorpus:
    """Documents end to end.

    Args:
        tokens: Integers (total,); each document ends with the separator.
        documents: int64 (documents + 1,), where each document starts.
        tokenizer: The tokenizer of the tokens.
    """

    tokens: np.ndarray
    documents: np.ndarray
    tokenizer: Tokenizer

    @classmethod
    def open(cls, directory: str | Path) -> "TokenCorpus":
        """Opens a directory that `prepare` wrote; the tokens stay on disk.

        Raises:
            ValueError: The directory holds no corpus, or its tokens exceed the vocabulary beside them.
        """
        directory = Path(directory)
        recover(directory)
        missing = [
            name for name in ("tokens.npy", "documents.npy", "tokenizer.json") if not (directory / name).exists()
        ]
        if missing:
            raise ValueError(
                f"{directory} is not a corpus: it lacks {', '.join(missing)}. `bertzoo prepare` makes one."
            )
        tokenizer = Tokenizer.from_directory(directory)
        corpus = cls(np.load(directory / "tokens.npy", mmap_mode="r"), np.load(directory / "documents.npy"), tokenizer)
        if len(corpus.tokens) and int(corpus.tokens[: 10**6].max()) >= tokenizer.vocabulary_size:
            raise ValueError(
                f"the tokens in {directory} must be below {tokenizer.vocabulary_size}, the size of its vocabulary."
            )
        return corpus


def overlap(corpus: TokenCorpus, held_out: TokenCorpus, seed: int = 0) -> float:
    """The fraction of 10,000 sequences of 13 tokens, sampled from held-out text, that the corpus contains too.

    Source: Brown et al. 2020, "Language Models are Few-Shot Learners", appendix C.
    """
    count = len(held_out.tokens) - NGRAM + 1
    if count < 1 or len(corpus.tokens) < NGRAM:
        return 0.0
    rng = np.random.Generator(np.random.Philox(key=[seed, 0]))
    starts = np.sort(rng.choice(count, min(count, SAMPLED), replace=False))
    sampled = np.concatenate([_hashes(held_out.tokens[i : i + NGRAM]) for i in starts])
    is_known = np.zeros(len(sampled), bool)
    for first in range(0, len(corpus.tokens) - NGRAM + 1, 2**20):
        is_known |= np.isin(sampled, _hashes(corpus.tokens[first : first + 2**20 + NGRAM - 1]))
    return float(is_known.mean())


def _hashes(tokens: np.ndarray) -> np.ndarray:
    """uint64, one number for each sequence of 13 tokens."""
    tokens = tokens.astype(np.uint64) + np.uint64(1)
    total = np.zeros(len(tokens) - NGRAM + 1, np.uint64)
    for i in range(NGRAM):
        total = total * np.uint64(0x9E3779B97F4A7C15) + tokens[i : len(total) + i]
    return total


class Sentences:
    """The sentences of a corpus.

    A sentence ends with the punctuation that ends sentences in any script, or with its document. A sentence of more
    than `longest` tokens, as in a log file or a language without such punctuation, is split every `longest` tokens, so
    that examples may begin there.

    Args:
        corpus: The corpus.
        longest: Most tokens of a sentence.

    Attributes:
        starts, ends: int64 (n,); sentence i is `tokens[starts[i]:ends[i]]`, without the document's separator.
        bounds: int64 (documents + 1,); document d is the sentences `bounds[d]:bounds[d + 1]`. Documents without a word
            are left out.
    """

    def __init__(self, corpus: TokenCorpus, longest: int = LONGEST):
        self.corpus = corpus
        self.starts = _with_cuts(_starts(corpus), corpus, longest)
        self.bounds = np.unique(np.searchsorted(self.starts, corpus.documents))

    @cached_property
    def ends(self) -> np.ndarray:
        ends = np.append(self.starts[1:], len(self.corpus.tokens))
        closing = self.bounds[1:] - 1
        documents = self.corpus.documents
        ends[closing] = documents[np.searchsorted(documents, self.starts[closing], "right")] - 1
        return ends

    @cached_property
    def followed(self) -> np.ndarray:
        """The sentences that are followed by another one of their document, int64, ascending."""
        return np.flatnonzero(self.ends[:-1] == self.starts[1:])

    def document(self, sentences: np.ndarray) -> np.ndarray:
        """The documents of sentences: int (n,) -> int (n,), indices."""
        return np.searchsorted(self.bounds, sentences, "right") - 1


def end_tokens(tokenizer: Tokenizer) -> list[int]:
    """The ids of the tokens that end a sentence."""
    ids = sorted(tokenizer.vocabulary.values())
    texts = tokenizer.decode([[i] for i in ids])  # without special tokens
    return [i for i, text in zip(ids, texts) if SENTENCE_END.fullmatch(text.strip())]


def _with_cuts(starts: np.ndarray, corpus: TokenCorpus, longest: int) -> np.ndarray:
    """Starts with more of them inside sentences that are longer than `longest` tokens."""
    # A document's separator is its last token, in which no sentence goes on.
    borders = np.append(starts, len(corpus.tokens))
    ends = corpus.documents[np.searchsorted(corpus.documents, starts, "right")] - 1
    sizes = np.minimum(borders[1:], ends) - starts
    pieces = np.maximum(1, -(-sizes // longest))
    first = np.cumsum(pieces) - pieces
    within = np.arange(pieces.sum()) - np.repeat(first, pieces)
    return np.repeat(starts, pieces) + within * longest


def _starts(corpus: TokenCorpus) -> np.ndarray:
    closing = np.array([*end_tokens(corpus.tokenizer), corpus.tokenizer.sep_id], corpus.tokens.dtype)
    found, before = [np.zeros(0, np.int64)], True
    for first in range(0, len(corpus.tokens), TOKENS_AT_ONCE):
        closes = np.isin(corpus.tokens[first : first + TOKENS_AT_ONCE], closing)
        after = np.concatenate([[before], closes[:-1]])
        found.append(np.flatnonzero(after & ~closes) + first)
        before = closes[-1]
    return np.concatenate(found)
