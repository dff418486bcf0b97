"""Entities of any label, from logits of spans or of words."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bertzoo.tasks.probabilities import sigmoid
from bertzoo.text.label_prompts import Prompt, WordWindow


class Candidate(NamedTuple):
    """A span of words that may be an entity: its first and last word, its label's number, and its probability."""

    first: int
    last: int
    label: int
    score: float

    def sort_key(self, is_of_spans: bool) -> tuple[int, int, int]:
        """By which candidates are ordered, so that of equal scores gliner's choice is taken."""
        return self[:3] if is_of_spans else (self.first, self.label, self.last)


def find_candidates(
    logits: np.ndarray, window: WordWindow, prompt: Prompt, threshold: float, is_of_spans: bool
) -> list[Candidate]:
    """The spans of a window that may be entities, in the order of their words.

    Args:
        logits: Those of a row: float (words, widths, labels) of spans, or (words, labels, 3) of first, last and inner
            words.
        window, prompt: What the row is made of.
        threshold: The least probability, from 0 to 1.
        is_of_spans: Whether the logits are of spans.
    """
    count, labels = window.end - window.begin, len(prompt.labels)
    if is_of_spans:
        first, last, column, scores = _spans_above(logits[:count, :, :labels], threshold)
    else:
        first, last, column, scores = _pairs_above(logits[:count, :labels], threshold)
    first, last = first + window.begin, last + window.begin
    read = window.reads(first, last)
    arrays = first[read], last[read], prompt.labels[column[read]], scores[read]
    return [Candidate(*values) for values in zip(*(array.tolist() for array in arrays))]


def _spans_above(logits: np.ndarray, threshold: float) -> tuple[np.ndarray, ...]:
    first, width, column = np.nonzero(logits > _logit_below(threshold))
    scores = sigmoid(logits[first, width, column]).astype("float32")
    kept = (scores > threshold) & (first + width < len(logits))
    return first[kept], (first + width)[kept], column[kept], scores[kept]


def _pairs_above(logits: np.ndarray, threshold: float) -> tuple[np.ndarray, ...]:
    """Pairs of a first and a last word of one label, between which all words are inside an entity of it; their score is
    the least probability of all that is said of them."""
    found: list[tuple[int, int, int, float]] = []
    scores = sigmoid(logits).astype("float32")
    begins, ends, inner = (scores[..., i] for i in range(3))
    for first, column in zip(*(array.tolist() for array in np.nonzero(begins > threshold))):
        outside = np.flatnonzero(inner[first:, column] < threshold)
        after = first + int(outside[0]) if len(outside) else len(logits)
        for last in (first + np.flatnonzero(ends[first:after, column] > threshold)).tolist():
            least = min(inner[first : last + 1, column].min(), begins[first, column], ends[last, column])
            found.append((first, last, column, float(least)))
    table = np.array(found, dtype=np.float64).reshape(-1, 4).T
    return (*(values.astype(int) for values in table[:3]), table[3])


def _logit_below(threshold: float) -> float:
    """A logit whose probability is just below the threshold, so that few sigmoids are computed."""
    if not 0 < threshold < 1:
        return -np.inf if threshold <= 0 else np.inf
    return float(np.log(threshold) - np.log1p(-threshold)) - 1e-3


def select_entities(candidates: Sequence[Candidate], nested: bool) -> list[Candidate]:
    """The best candidates that do not overlap, by their first words.

    Args:
        candidates: Those of a text.
        nested: Whether an entity may lie inside another.
    """
    selected: list[Candidate] = []
    by_word: defaultdict[int, list[Candidate]] = defaultdict(list)  # the selected ones that hold it
    for one in sorted(candidates, key=lambda candidate: -candidate.score):
        words = range(one.first, one.last + 1)
        if not any(_clash(one, other, nested) for word in words for other in by_word.get(word, ())):
            selected.append(one)
            for word in words:
                by_word[word].append(one)
    return sorted(selected, key=lambda candidate: candidate.first)


def _clash(one: Candidate, other: Candidate, nested: bool) -> bool:
    """Whether two candidates that share a word can't both be entities."""
    if not nested or one[:2] == other[:2]:
        return True
    holds = one.first <= other.first and one.last >= other.last
    return not (holds or (other.first <= one.first and other.last >= one.last))


def answer_of_text(text: str, words: np.ndarray, labels: Sequence[str], entities: list[Candidate]) -> list[dict]:
    """The answer of `EntityFinder.tag` for a text; `words` int (words, 2) are the characters of its words."""
    answers: list[dict[str, Any]] = []
    for one in entities:
        begin, end = int(words[one.first, 0]), int(words[one.last, 1])
        label = labels[one.label]
        answers.append({"text": text[begin:end], "label": label, "score": one.score, "start": begin, "end": end})
    return answers
