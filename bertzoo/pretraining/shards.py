"""A corpus as one array of token ids on disk, read through memory mapping."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertzoo.checkpoints.saving import recover
from bertzoo.text.tokenizer import Tokenizer

NGRAM, SAMPLED = 13, 10_000  # tokens, as in Brown et al. 2020, appendix C; of the held-out text


@dataclass(frozen=True)
class Shards:
    """Documents end to end.

    tokens: integers (total,), each document closed by the separator. documents: int64 (documents + 1,), where each
        starts.
    """

    tokens: np.ndarray
    documents: np.ndarray
    tokenizer: Tokenizer

    @classmethod
    def open(cls, directory: str | Path) -> "Shards":
        """Opens what `prepare` wrote; the tokens stay on disk.

        Raises:
            ValueError: The directory holds no shards, or their tokens are not those of the vocabulary beside them.
        """
        directory = Path(directory)
        recover(directory)
        missing = [
            name for name in ("tokens.npy", "documents.npy", "tokenizer.json") if not (directory / name).exists()
        ]
        if missing:
            raise ValueError(
                f"{directory} lacks {', '.join(missing)}: it holds no shards; `bertzoo prepare` makes them."
            )
        tokenizer = Tokenizer.from_directory(directory)
        shards = cls(np.load(directory / "tokens.npy", mmap_mode="r"), np.load(directory / "documents.npy"), tokenizer)
        if len(shards.tokens) and int(shards.tokens[: 10**6].max()) >= tokenizer.vocabulary_size:
            raise ValueError(
                f"the tokens in {directory} are not those of its vocabulary of {tokenizer.vocabulary_size}."
            )
        return shards


def overlap(shards: Shards, held_out: Shards, seed: int = 0) -> float:
    """The share of 10,000 sequences of 13 tokens, drawn from held-out text, that the corpus holds too.

    Source: Brown et al. 2020, "Language Models are Few-Shot Learners", appendix C.
    """
    places = len(held_out.tokens) - NGRAM + 1
    if places < 1 or len(shards.tokens) < NGRAM:
        return 0.0
    rng = np.random.Generator(np.random.Philox(key=[seed, 0]))
    drawn = np.sort(rng.choice(places, min(places, SAMPLED), replace=False))
    wanted = np.concatenate([_hashes(held_out.tokens[i : i + NGRAM]) for i in drawn])
    found = np.zeros(len(wanted), bool)
    for first in range(0, len(shards.tokens) - NGRAM + 1, 2**20):
        found |= np.isin(wanted, _hashes(shards.tokens[first : first + 2**20 + NGRAM - 1]))
    return float(found.mean())


def _hashes(tokens: np.ndarray) -> np.ndarray:
    """uint64, one number for each sequence of 13 tokens."""
    tokens = tokens.astype(np.uint64) + np.uint64(1)
    total = np.zeros(len(tokens) - NGRAM + 1, np.uint64)
    for i in range(NGRAM):
        total = total * np.uint64(0x9E3779B97F4A7C15) + tokens[i : len(total) + i]
    return total
