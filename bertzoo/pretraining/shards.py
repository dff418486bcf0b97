"""A corpus as one array of token ids on disk, read through memory mapping."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertzoo.checkpoints.saving import recover
from bertzoo.text.tokenizer import Tokenizer


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
