"""From raw text to a model's inputs: a tokenizer with the limits of one model."""

import tempfile
import warnings
from pathlib import Path

import numpy as np

from bertzoo.models.config import EncoderConfig
from bertzoo.text.encoded import Encoded
from bertzoo.text.tokenizer import Tokenizer


class Preprocessor:
    """Turns texts, or pairs of them, into `token_ids`, `segment_ids` and `padding_mask`, each int32 (n, length).

    Args:
        tokenizer: The tokenizer. It is shared, not copied: its `max_length` becomes this one's.
        max_length: The longest row in tokens; at most what the model has positions for.
        segments: Whether the model tells the two texts of a pair apart; if not, all segment ids are 0.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int | None = None, segments: bool = True):
        if max_length is not None:
            tokenizer.max_length = max_length
        self.tokenizer, self.segments = tokenizer, segments

    @property
    def max_length(self) -> int | None:
        """The longest row in tokens, special tokens included."""
        return self.tokenizer.max_length

    @property
    def pad_id(self) -> int:
        """What rows are filled up with."""
        return self.tokenizer.pad_id or 0

    def encode(self, texts, pairs=None, truncate: bool = True) -> Encoded:
        """Ragged rows, the form in which data sets hold text; of at most `max_length` tokens unless told not to cut."""
        encoded = self.tokenizer.encode(texts, pairs, truncate=truncate)
        if self.segments:
            return encoded
        return Encoded(encoded.token_ids, np.zeros_like(encoded.segment_ids), encoded.starts)

    def __call__(self, texts, pairs=None) -> dict[str, np.ndarray]:
        encoded = self.encode(texts, pairs)
        return encoded.pad(np.arange(len(encoded)), int(encoded.lengths.max(initial=0)), self.pad_id)

    def get_config(self) -> dict:
        """Everything about it as text, so that a `.keras` archive is complete."""
        files = {name: content.decode() for name, content in self.tokenizer.files().items()}
        return {"files": files, "max_length": self.max_length, "segments": self.segments}

    @classmethod
    def from_config(cls, config: dict) -> "Preprocessor":
        """What `get_config` described."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("tokenizer.json", "tokenizer_config.json"):
                if name in config["files"]:
                    Path(folder, name).write_text(config["files"][name], encoding="utf-8")
            tokenizer = Tokenizer.from_directory(folder)
        return cls(tokenizer, config["max_length"], config["segments"])


def load_preprocessor(
    directory: Path, config: EncoderConfig, max_length: int | None, lowercase: bool | None
) -> Preprocessor:
    """The tokenizer of a checkpoint directory with the limits of its model.

    Raises:
        ValueError: `max_length` is more than the model has positions for, or the vocabulary more than it has embeddings
        for.
    """
    tokenizer = Tokenizer.from_directory(directory, lowercase=lowercase)
    if max_length is not None and max_length > config.max_length:
        raise ValueError(f"max_length is {max_length}; the model has positions for {config.max_length} tokens.")
    if tokenizer.vocabulary_size > config.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocabulary_size} tokens and the model embeddings for {config.vocab_size}: "
            "they do not belong together."
        )
    if tokenizer.vocabulary_size < 0.9 * config.vocab_size:
        warnings.warn(
            f"{directory}: the tokenizer has {tokenizer.vocabulary_size} tokens and the model embeddings for "
            f"{config.vocab_size}. If its files are not whole, texts are split wrongly: compare their sizes.",
            stacklevel=2,
        )
    stored = tokenizer.max_length or config.max_length
    return Preprocessor(tokenizer, max_length or min(stored, config.max_length), segments=config.type_vocab_size > 1)
