"""The tokenizer of a preset, with the limits of its model."""

import warnings
from pathlib import Path

from bertzoo.models.config import EncoderConfig
from bertzoo.text.tokenizer import Tokenizer


def load_tokenizer(directory: Path, config: EncoderConfig, max_length: int | None, lowercase: bool | None) -> Tokenizer:
    """Loads the tokenizer of a checkpoint directory with the limits of its model.

    Raises:
        ValueError: `max_length` exceeds the model's positions, or the vocabulary exceeds its token embeddings.
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
    tokenizer.max_length = max_length or min(tokenizer.max_length or config.max_length, config.max_length)
    tokenizer.segments = config.type_vocab_size > 1
    return tokenizer
