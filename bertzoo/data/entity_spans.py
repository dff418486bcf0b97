"""Entities in characters of texts, as tags and as words."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertzoo.text import tags as bio

INTEGERS = (int, np.integer)


def tags_of_entities(
    spans: Sequence, number: int, text: str, words: np.ndarray, labels: list[str], scheme: str | None
) -> list[str]:
    """Tags of words from entities in characters. An entity that begins or ends inside a word takes the whole word.

    Args:
        spans: The entities, see `find_entity_words`.
        number, text, words: As of `find_entity_words`.
        labels: The label names, for a message.
        scheme: That of the tags; None where the labels mark no entities.

    Raises:
        TypeError, ValueError: As `find_entity_words`, and where labels mark no entities or two entities share a word.
    """
    if scheme is None:
        raise ValueError(f"y holds entities; the labels {labels} mark none: name them O, B-… and I-…, or O and types.")
    tags: list[str] = [bio.OUTSIDE] * len(words)
    for span in spans:
        begin, end, kind, inside = find_entity_words(span, number, text, words)
        taken = [text[slice(*words[i])] for i in inside if tags[i] != bio.OUTSIDE]
        if taken:
            raise ValueError(
                f"y[{number}] has the span {begin}:{end} ({text[begin:end]!r:.40}), which shares the word "
                f"{taken[0]!r} with another."
            )
        for i, tag in zip(inside, bio.make_entity_tags(kind, len(inside), scheme)):
            tags[i] = tag
    return tags


def find_entity_words(span: Any, number: int, text: str, words: np.ndarray) -> tuple[int, int, str, np.ndarray]:
    """The characters of an entity, its type, and its words, of which one at least overlaps it.

    Args:
        span: (start, end, type), or a dict with start, end and label.
        number: That of the text, for messages.
        text: The text.
        words: The characters of its words, int (words, 2).

    Raises:
        TypeError: Its start or end is no integer, or its type no string.
        ValueError: The span is of another form, lies outside the text, or covers no word.
    """
    try:
        begin, end, kind = (span["start"], span["end"], span["label"]) if isinstance(span, Mapping) else span
    except (TypeError, ValueError, KeyError):
        raise ValueError(
            f"y[{number}] must hold entities (start, end, type), since x[{number}] is a text; for a tag for each "
            f"word, pass x[{number}] as a list of words. Received: {span!r:.60}."
        ) from None
    if not (isinstance(begin, INTEGERS) and isinstance(end, INTEGERS) and isinstance(kind, str)):
        raise TypeError(
            f"y[{number}] must hold entities of two integers and a string, (start, end, type). Received: {span!r:.60}."
        )
    if not 0 <= begin < end <= len(text):
        raise ValueError(
            f"y[{number}] must hold spans inside the text, from 0 to {len(text)}. Received: {begin}:{end}."
        )
    inside = np.flatnonzero((words[:, 0] < end) & (words[:, 1] > begin))
    if not len(inside):
        raise ValueError(f"y[{number}] has the span {begin}:{end} ({text[begin:end]!r:.40}), which covers no word.")
    return int(begin), int(end), kind, inside


def wrong_tag_count(number: int, num_tags: int, num_words: int) -> ValueError:
    """The error for a sentence, by its number, that has not a tag for each word."""
    return ValueError(f"y[{number}] must hold a tag for each of the {num_words} words. Received: {num_tags} tags.")
