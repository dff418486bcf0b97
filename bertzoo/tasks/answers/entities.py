"""Labels of words, and the entities that they mark, from the logits of a text's tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertzoo.tasks.probabilities import softmax
from bertzoo.text import tags as bio
from bertzoo.text.word_alignment import WordAlignment


def best_labels(
    logits: np.ndarray, alignment: WordAlignment, label_all_tokens: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Label ids of a text's words and their probabilities, (words,) each.

    Args:
        logits: float (tokens, labels).
        alignment: The words' tokens.
        label_all_tokens: Average the probabilities of all tokens of a word; else the first one's count.
    """
    probabilities = softmax(logits)
    if not label_all_tokens:
        probabilities = probabilities[alignment.tokens[:, 0]]
    else:
        means = [probabilities[a:b].mean(axis=0) for a, b in alignment.tokens]
        probabilities = np.array(means).reshape(-1, logits.shape[-1])
    return probabilities.argmax(axis=-1), probabilities.max(axis=-1)


def find_labelled_spans(
    text: str, alignment: WordAlignment, names: Sequence[str], scores: np.ndarray, scheme: str | None
) -> list[dict[str, Any]]:
    """The answer of `TokenClassifier.tag` for a text: its entities, or its words where the labels mark no entities.

    Args:
        text: The text.
        alignment: Its words.
        names: The label of each word.
        scores: The probability of each word's label.
        scheme: As of `bertzoo.text.tags.detect_tag_scheme`.
    """
    groups = bio.find_entities(names) if scheme else [(name, i, i + 1) for i, name in enumerate(names)]
    entities = []
    for label, first, after in groups:
        begin, end = int(alignment.spans[first, 0]), int(alignment.spans[after - 1, 1])
        score = float(np.mean(scores[first:after], dtype="float64"))
        entities.append({"text": text[begin:end], "label": label, "score": score, "start": begin, "end": end})
    return entities
