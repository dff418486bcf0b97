"""The tokens of a text as a person reads them: word pieces, and the words that they make up."""

from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np

from bertzoo.models.encoder import Encoder
from bertzoo.text.encoded import Encoded
from bertzoo.text.inputs import as_pairs
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.word_alignment import align_words, split_words


class Pieces(NamedTuple):
    """The tokens of one row, special tokens included.

    strings: one a token, as it stands in the text; "##" before those that go on with a word. words: the words, special
    tokens among them. word_of: int (tokens,), the number of each token's word. added: bool (tokens,), whether a token
    was put around the text, as [CLS] is, and is none of it.
    """

    strings: tuple[str, ...]
    words: tuple[str, ...]
    word_of: np.ndarray
    added: np.ndarray


def encoder_of(model) -> Encoder:
    """The encoder of a task, or the encoder itself."""
    return model if isinstance(model, Encoder) else model.backbone


def encode_pieces(model, texts, pairs=None, tokenizer: Tokenizer | None = None) -> tuple[Encoded, list[Pieces]]:
    """Texts, or pairs of texts, as rows of tokens and as what a person reads.

    Args:
        model: An encoder or a task.
        texts, pairs: As a tokenizer takes them.
        tokenizer: The task's where None.

    Raises:
        ValueError: There is no tokenizer.
    """
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise ValueError("the model has no tokenizer to read texts with; pass tokenizer=.")
    firsts, seconds = as_pairs(texts, pairs)
    encoded = tokenizer.encode(firsts, seconds, offsets=True)
    sentences = zip(firsts) if seconds is None else zip(firsts, seconds)
    pieces = [_read_row(tokenizer, encoded, row, some) for row, some in enumerate(sentences)]
    return encoded, pieces


def rows_of(encoded: Encoded, pad_id: int, batch_size: int) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
    """The rows in their order, `batch_size` at a time: their numbers, and inputs as long as the longest of them."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; it is {batch_size!r}.")
    for begin in range(0, len(encoded), batch_size):
        rows = range(begin, min(begin + batch_size, len(encoded)))
        yield rows, encoded.pad(rows, int(encoded.lengths[rows].max()), pad_id)


def hidden_states(
    model, texts, tokenizer: Tokenizer | None = None, batch_size: int = 32
) -> Iterator[tuple[Pieces, np.ndarray]]:
    """Each text's pieces, with what the embeddings and each block make of them: float32 (layers + 1, tokens, hidden).

    Raises:
        ValueError: There are no texts, or no tokenizer.
    """
    encoder = encoder_of(model)
    encoded, pieces = encode_pieces(model, texts, None, tokenizer)
    if len(encoded) == 0:
        raise ValueError("there is nothing to represent: texts is empty.")
    for rows, inputs in rows_of(encoded, encoder.config.pad_token_id, batch_size):
        states = encoder(inputs, return_all=True)["hidden_states"]
        states = np.stack([keras.ops.convert_to_numpy(keras.ops.cast(layer, "float32")) for layer in states], axis=1)
        for number, row in zip(rows, states):
            yield pieces[number], row[:, : len(pieces[number].strings)]


def _read_row(tokenizer, encoded: Encoded, row: int, sentences: tuple[str, ...]) -> Pieces:
    part = slice(encoded.row_splits[row], encoded.row_splits[row + 1])
    ids, offsets, numbers = encoded.token_ids[part], encoded.offsets[part], encoded.word_ids[part]
    strings = [tokenizer.id_to_token(i) for i in ids]
    heads = np.ones(len(ids), bool)  # where a word begins
    words = {}
    inner = np.flatnonzero(numbers >= 0)
    runs = np.split(inner, np.flatnonzero(np.diff(inner) > 1) + 1) if len(inner) else []
    for run, text in zip(runs, (text for text in sentences if text.strip())):
        for place in run:
            written = text[offsets[place, 0] : offsets[place, 1]].strip()
            goes_on = place > run[0] and numbers[place] == numbers[place - 1]
            strings[place] = ("##" if goes_on else "") + (written or strings[place].removeprefix("##"))
        alignment = align_words(offsets[run], split_words(text))
        for (first, last), (begin, end) in zip(alignment.tokens, alignment.spans):
            heads[run[first] + 1 : run[first] + last - first] = False
            words[run[first]] = text[begin:end]
    begins = np.flatnonzero(heads)
    names = tuple(words.get(place, strings[place]) for place in begins)
    return Pieces(tuple(strings), names, np.cumsum(heads) - 1, numbers < 0)
