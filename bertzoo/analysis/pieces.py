"""The tokens of a text, the words that they form, and hidden states."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from bertzoo.models.encoder import Encoder
from bertzoo.text.encoded import Encoded, to_text_lists
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.word_alignment import align_words, find_word_spans


class TextTokens(NamedTuple):
    """The tokens of one text or pair, including special tokens.

    Attributes:
        strings: The tokens as written in the text, with "##" before those that continue a word.
        words: The words, including special tokens.
        word_of: int (tokens,), the index of each token's word.
        added: bool (tokens,), True for tokens that the tokenizer added, such as [CLS].
    """

    strings: tuple[str, ...]
    words: tuple[str, ...]
    word_of: np.ndarray
    added: np.ndarray


def get_encoder(model: keras.Model) -> Encoder:
    """The encoder of a task, or the encoder itself."""
    return model if isinstance(model, Encoder) else model.backbone


def encode_with_words(
    model: keras.Model, texts: Any, pairs: Any = None, tokenizer: Tokenizer | None = None
) -> tuple[Encoded, list[TextTokens]]:
    """Encodes texts or pairs, and finds their words.

    Args:
        model: An encoder or a task.
        texts, pairs: See `Tokenizer`.
        tokenizer: The tokenizer; the task's if None.

    Raises:
        ValueError: There is no tokenizer.
    """
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise ValueError("expected a task with a tokenizer. Received: a model with no tokenizer; pass tokenizer=.")
    firsts, seconds = to_text_lists(texts, pairs)
    encoded = tokenizer.encode(firsts, seconds, return_offsets=True)
    sentences = zip(firsts) if seconds is None else zip(firsts, seconds)
    pieces = [_read_row(tokenizer, encoded, row, some) for row, some in enumerate(sentences)]
    return encoded, pieces


def iterate_padded_batches(
    encoded: Encoded, pad_id: int, batch_size: int
) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
    """Batches in order: the indices of the rows, and inputs padded to the longest of them."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1. Received: {batch_size!r}.")
    for begin in range(0, len(encoded), batch_size):
        rows = range(begin, min(begin + batch_size, len(encoded)))
        yield rows, encoded.pad(rows, int(encoded.lengths[rows].max()), pad_id)


def hidden_states(
    model: keras.Model, texts: Any, tokenizer: Tokenizer | None = None, batch_size: int = 32
) -> Iterator[tuple[TextTokens, np.ndarray]]:
    """Each text's pieces and hidden states, float32 (layers + 1, tokens, hidden).

    Raises:
        ValueError: There are no texts, or no tokenizer.
    """
    encoder = get_encoder(model)
    encoded, pieces = encode_with_words(model, texts, None, tokenizer)
    if len(encoded) == 0:
        raise ValueError("expected one or more texts. Received: texts is empty.")
    for rows, inputs in iterate_padded_batches(encoded, encoder.config.pad_token_id, batch_size):
        states = encoder(inputs, return_all=True)["hidden_states"]
        states = np.stack([keras.ops.convert_to_numpy(keras.ops.cast(layer, "float32")) for layer in states], axis=1)
        for number, row in zip(rows, states):
            yield pieces[number], row[:, : len(pieces[number].strings)]


def _read_row(tokenizer, encoded: Encoded, row: int, sentences: tuple[str, ...]) -> TextTokens:
    assert encoded.offsets is not None and encoded.word_ids is not None  # encode_with_words asks for them
    part = slice(encoded.row_splits[row], encoded.row_splits[row + 1])
    ids, offsets, numbers = encoded.token_ids[part], encoded.offsets[part], encoded.word_ids[part]
    strings = [tokenizer.id_to_token(i) for i in ids]
    heads = np.ones(len(ids), bool)  # the first tokens of words
    words = {}
    inner = np.flatnonzero(numbers >= 0)
    runs = np.split(inner, np.flatnonzero(np.diff(inner) > 1) + 1) if len(inner) else []
    for run, text in zip(runs, (text for text in sentences if text.strip())):
        for place in run:
            written = text[offsets[place, 0] : offsets[place, 1]].strip()
            continues = place > run[0] and numbers[place] == numbers[place - 1]
            strings[place] = ("##" if continues else "") + (written or strings[place].removeprefix("##"))
        alignment = align_words(offsets[run], find_word_spans(text))
        for (first, last), (begin, end) in zip(alignment.tokens, alignment.spans):
            heads[run[first] + 1 : run[first] + last - first] = False
            words[run[first]] = text[begin:end]
    begins = np.flatnonzero(heads)
    names = tuple(words.get(place, strings[place]) for place in begins)
    return TextTokens(tuple(strings), names, np.cumsum(heads) - 1, numbers < 0)
