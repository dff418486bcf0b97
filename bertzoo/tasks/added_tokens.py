"""Further tokens for a trained encoder, such as markers of entities."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from bertzoo.encoder import Encoder
from bertzoo.text.tokenizer import Tokenizer


def add_tokens(encoder: Encoder, tokenizer: Tokenizer, tokens: Sequence[str]) -> tuple[Encoder, Tokenizer]:
    """The encoder and its tokenizer with further tokens, which are never split; the ones given stay as they are.

    The embedding of a new token starts near the mean of all others, to which its usual initial value is added.

    Args:
        encoder, tokenizer: They belong together.
        tokens: What to add, such as "[E1]". Those that the tokenizer has already keep their ids.
    """
    tokenizer = tokenizer.with_tokens(tokens)
    before = encoder.config.vocab_size
    config = encoder.get_config()
    config["config"]["vocab_size"] = max(before, tokenizer.vocabulary_size)
    larger = Encoder.from_config(config)
    for old, new in zip(encoder.weights, larger.weights, strict=True):
        value = ops.convert_to_numpy(old)
        if old is encoder.embeddings.token:
            value = np.concatenate([value, value.mean(axis=0) + ops.convert_to_numpy(new)[before:]])
        new.assign(value)
    return larger, tokenizer
