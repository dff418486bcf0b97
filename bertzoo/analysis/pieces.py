"""The tokens of a text as a person reads them: word pieces, and the words that they make up."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bertzoo.encoder import Encoder
from bertzoo.tasks.units import find_units
from bertzoo.text.encoded import Encoded
from bertzoo.text.inputs import as_pairs
from bertzoo.text.preprocessor import Preprocessor
from bertzoo.text.words import split_words


class Pieces(NamedTuple):
    """The tokens of one row, special tokens included.

    strings: one a token, as it stands in the text; "##" before those that go on with a word. words: the words, special
    tokens among them. word_of: int (tokens,), the number of each token's word.
    """

    strings: tuple[str, ...]
    words: tuple[str, ...]
    word_of: np.ndarray


def encoder_of(model) -> Encoder:
    """The encoder of a task, or the encoder itself."""
    return model if isinstance(model, Encoder) else model.backbone


def encode_pieces(model, texts, pairs=None, preprocessor: Preprocessor | None = None) -> tuple[Encoded, list[Pieces]]:
    """Texts, or pairs of texts, as rows of tokens and as what a person reads.

    Args:
        model: An encoder or a task.
        texts, pairs: As a tokenizer takes them.
        preprocessor: The task's where None.

    Raises:
        ValueError: There is no preprocessor.
    """
    preprocessor = preprocessor or getattr(model, "preprocessor", None)
    if preprocessor is None:
        raise ValueError("the model has no preprocessor to read texts with; pass preprocessor=.")
    firsts, seconds = as_pairs(texts, pairs)
    tokenizer = preprocessor.tokenizer
    encoded = tokenizer.encode(firsts, seconds, offsets=True)
    sentences = zip(firsts) if seconds is None else zip(firsts, seconds)
    pieces = [_read_row(tokenizer, encoded, row, some) for row, some in enumerate(sentences)]
    if not preprocessor.segments:
        encoded = Encoded(encoded.token_ids, np.zeros_like(encoded.segment_ids), encoded.starts)
    return encoded, pieces


def rows_of(encoded: Encoded, pad_id: int, batch_size: int) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
    """The rows in their order, `batch_size` at a time: their numbers, and inputs as long as the longest of them."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; it is {batch_size!r}.")
    for begin in range(0, len(encoded), batch_size):
        rows = range(begin, min(begin + batch_size, len(encoded)))
        yield rows, encoded.pad(rows, int(encoded.lengths[rows].max()), pad_id)


def _read_row(tokenizer, encoded: Encoded, row: int, sentences: tuple[str, ...]) -> Pieces:
    part = slice(encoded.starts[row], encoded.starts[row + 1])
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
        units = find_units(offsets[run], split_words(text))
        for (first, last), (begin, end) in zip(units.pieces, units.spans):
            heads[run[first] + 1 : run[first] + last - first] = False
            words[run[first]] = text[begin:end]
    begins = np.flatnonzero(heads)
    return Pieces(tuple(strings), tuple(words.get(place, strings[place]) for place in begins), np.cumsum(heads) - 1)
