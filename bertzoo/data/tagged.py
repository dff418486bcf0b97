"""What a caller passes as sentences with tags becomes texts, the spans of their words, and a label for each word."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertzoo.data.table_columns import as_list, column_names, find_column, label_column, require_column
from bertzoo.data.targets import class_index
from bertzoo.text import tags as bio
from bertzoo.text.inputs import as_texts
from bertzoo.text.words import split_words

# Column names of tables.
WORDS = ("tokens", "words")
TEXTS = ("text", "sentence", "content")
TAGS = ("tags", "ner_tags", "labels", "upos", "entities", "spans", "pos_tags")
IGNORED = -1


class Tagged(NamedTuple):
    """Texts; the character spans of their words, int64 (words, 2) each; and raw labels where there are any."""

    texts: list[str]
    words: list[np.ndarray]
    labels: Any


def read_tagged(x, y=None) -> Tagged:
    """Takes sentences apart.

    Args:
        x: A text or a list of texts, split by `split_words`; or a list of sentences, each a list of words; or a table
            (frame, `datasets.Dataset`, dict of columns) with a column of words (tokens, words) or texts (text).
        y: For sentences of words, a list of tags a sentence. For texts, a list of entities a text, each (start, end,
            type) in characters, or a dict of these. The table's (tags, ner_tags, labels, entities, spans …) where None.

    Raises:
        TypeError: A word is no string.
        ValueError: x and y differ in length, or a table lacks a column of a known name.
    """
    if isinstance(x, Tagged):
        return x
    names = column_names(x)
    if names is not None:
        source, target = find_columns(names).values()
        if y is None and target is not None:
            y = label_column(x, target)
        x = x[source]
    if not isinstance(x, str):
        x = as_list(x)
    if y is not None:
        y = [_row_of(row, number) for number, row in enumerate(y)]
        if isinstance(x, str) or len(x) != len(y):
            raise ValueError(f"x has {1 if isinstance(x, str) else len(x)} sentences and y has {len(y)}.")
    if not isinstance(x, str) and len(x) and not isinstance(x[0], str):
        return _from_words(x, y)
    texts = as_texts(x)
    words = [split_words(text) for text in texts]
    return Tagged(texts, words, None if y is None else [_Spans(spans) for spans in y])


def find_columns(names: list) -> dict[str, str | None]:
    """Which columns of a table are taken: of words or texts, and `tags` (None where there is none).

    Raises:
        ValueError: The table has no column of words or texts with a known name.
    """
    source = require_column((*WORDS, *TEXTS), names)
    return {"words" if source in WORDS else "text": source, "tags": find_column(TAGS, names)}


def label_ids(tagged: Tagged, labels: list[str], scheme: str | None) -> list[np.ndarray]:
    """The number of each word's label, int32 (words,) a text; -1 where a word has none.

    Raises:
        ValueError: A label is unknown, tags are out of order, or there are too few or many.
    """
    if tagged.labels is None:
        raise ValueError("there are no targets: pass y, or a table with a column called tags.")
    rows = []
    for number, (text, words, given) in enumerate(zip(tagged.texts, tagged.words, tagged.labels)):
        tags = _from_spans(given.spans, number, text, words, labels, scheme) if isinstance(given, _Spans) else given
        if len(tags) != len(words):
            raise ValueError(f"y[{number}] has {len(tags)} tags for {len(words)} words.")
        rows.append([_label_id(tag, number, i, labels) for i, tag in enumerate(tags)])
    if scheme is not None:
        bio.check_tags(([labels[i] for i in row if i != IGNORED] for row in rows), scheme)
    return [np.array(row, dtype=np.int32) for row in rows]


def _row_of(row, number: int) -> list:
    """The tags of a sentence, or the entities of a text."""
    row = row.tolist() if hasattr(row, "tolist") else row
    if isinstance(row, (str, bytes, Mapping)) or not hasattr(row, "__iter__"):
        raise TypeError(
            f"y[{number}] must be a list: a tag for each word, or (start, end, type) for each entity. Received: "
            f"{row!r:.60}."
        )
    return list(row)


class _Spans(NamedTuple):
    """The labels of a raw text, in distinction to tags word by word."""

    spans: list


def _from_words(x: list, y: list | None) -> Tagged:
    texts, words = [], []
    for number, sentence in enumerate(x):
        sentence = sentence.tolist() if hasattr(sentence, "tolist") else sentence
        if isinstance(sentence, str) or not isinstance(sentence, Sequence):
            raise TypeError(f"x[{number}] must be a list of words like the rows before it; it is {sentence!r:.60}.")
        wrong = next((word for word in sentence if not isinstance(word, str)), None)
        if wrong is not None:
            raise TypeError(f"x[{number}] must be a list of words; it holds {wrong!r:.60}.")
        ends = np.cumsum([len(word) + 1 for word in sentence], dtype=np.int64) - 1
        texts.append(" ".join(sentence))
        words.append(np.stack([ends - [len(word) for word in sentence], ends], axis=1).reshape(-1, 2).astype(np.int64))
    return Tagged(texts, words, y)


def _label_id(tag, number: int, place: int, labels: list[str]) -> int:
    if tag is None:
        return IGNORED
    if not isinstance(tag, str) and tag in (-100, IGNORED):  # as PyTorch's losses mark what they leave out
        return IGNORED
    return class_index(tag, labels, f"y[{number}][{place}]")


def _from_spans(spans, number: int, text: str, words: np.ndarray, labels: list[str], scheme: str | None) -> list[str]:
    """Tags of words from entities in characters. An entity that begins or ends inside a word takes the whole word."""
    if scheme is None:
        raise ValueError(f"y holds entities; the labels {labels} mark none: name them O, B-… and I-…, or O and types.")
    letters = {"BIO": "BIIB", "BIOES": "BIES", "BILOU": "BILU", "IO": None}[scheme]
    tags: list[str] = [bio.OUTSIDE] * len(words)
    for span in spans:
        try:
            begin, end, kind = (span["start"], span["end"], span["label"]) if isinstance(span, Mapping) else span
        except (TypeError, ValueError, KeyError):
            raise ValueError(
                f"y[{number}] must hold entities (start, end, type), since x[{number}] is a text; for a tag for each "
                f"word, pass x[{number}] as a list of words. Received: {span!r:.60}."
            ) from None
        if not 0 <= begin < end <= len(text):
            raise ValueError(f"y[{number}] has the span {begin}:{end}; the text has {len(text)} characters.")
        inside = np.flatnonzero((words[:, 0] < end) & (words[:, 1] > begin))
        taken = [text[slice(*words[i])] for i in inside if tags[i] != bio.OUTSIDE]
        if not len(inside) or taken:
            what = f"shares the word {taken[0]!r} with another" if taken else "covers no word"
            raise ValueError(f"y[{number}] has the span {begin}:{end} ({text[begin:end]!r:.40}), which {what}.")
        for i, mark in zip(inside, bio.tags_for(len(inside), letters)):
            tags[i] = bio.join_parts(mark, kind)
    return tags
