"""Further tokens for a trained encoder, such as markers of entities."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from bertzoo.models.encoder import Encoder
from bertzoo.text.tokenizer import Tokenizer


def add_tokens(encoder: Encoder, tokenizer: Tokenizer, tokens: Sequence[str]) -> tuple[Encoder, Tokenizer]:
    """Returns the encoder and its tokenizer with further tokens, which are never split; the originals do not change.

    The embedding of a new token starts near the mean of those of the tokens that the text was before, to which its
    usual initial value is added.

    Args:
        encoder, tokenizer: They belong together.
        tokens: What to add, such as "[E1]". Those that the tokenizer has already keep their ids.
    """
    old_tokenizer, tokenizer = tokenizer, tokenizer.with_special_tokens(tokens)
    before = encoder.config.vocab_size
    config = encoder.get_config()
    config["config"]["vocab_size"] = max(before, tokenizer.vocabulary_size)
    larger = Encoder.from_config(config)
    for old, new in zip(encoder.weights, larger.weights, strict=True):
        value = ops.convert_to_numpy(old)
        if old is encoder.embeddings.token:
            value = extend_token_table(value, old_tokenizer, tokenizer, new.shape[0])
            added = slice(old_tokenizer.vocabulary_size, tokenizer.vocabulary_size)
            value[added] += ops.convert_to_numpy(new)[added]
        new.assign(value)
    return larger, tokenizer


def extend_token_table(
    table: np.ndarray, old_tokenizer: Tokenizer, new_tokenizer: Tokenizer, num_tokens: int
) -> np.ndarray:
    """Extends a table of tokens, (tokens, …) -> (count, …). The row of a new token is the mean of those of the tokens
    into which the old tokenizer splits it, or of all rows where it knows none of these."""
    out = np.zeros((num_tokens, *table.shape[1:]), table.dtype)
    out[: len(table)] = table
    for index in range(old_tokenizer.vocabulary_size, new_tokenizer.vocabulary_size):
        row = old_tokenizer.encode(new_tokenizer.id_to_token(index), truncate=False).row(0)
        tokens = [token for token in row if token not in (old_tokenizer.cls_id, old_tokenizer.sep_id)]
        known = set(tokens) - {old_tokenizer.unk_id}
        out[index] = (table[tokens] if known else table[: old_tokenizer.vocabulary_size]).mean(axis=0)
    return out
