"""Raw targets to arrays: of classes, labels, numbers, choices and tags, and those of sentence losses."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from bertzoo.data.labels import class_index, host_rows, whole_number
from bertzoo.data.parsing import Examples
from bertzoo.data.schemas import Entities
from bertzoo.text import tags as bio
from bertzoo.types import MULTI_LABEL, SINGLE_LABEL

IGNORED = -1  # the label of a word that counts in no loss


def target_rows(y: Any, count: int) -> list:
    """The targets of `count` examples: those of a list, array, Series, one-column frame or tensor.

    Raises:
        TypeError: y is not a sequence.
        ValueError: There are no targets, or too few or many.
    """
    if y is None:
        raise ValueError("there are no targets: pass y, or a table with a column that holds them, such as label.")
    if not hasattr(y, "__len__") or isinstance(y, (str, bytes, Set, Mapping)):
        raise TypeError(f"y must be a list, array, Series or tensor with a target for each row. Received: {y!r:.60}.")
    rows = host_rows(y)
    if len(rows) != count:
        raise ValueError(f"x has {count} rows and y has {len(rows)}; they must be the same number.")
    return rows


def example_weights(sample_weight: Any, count: int) -> np.ndarray | None:
    """Weights of `count` examples as float32 (n,); None stays None.

    Raises:
        ValueError: There are too few or many, or one is no finite number.
    """
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype="float32")
    if weights.shape != (count,):
        raise ValueError(
            f"sample_weight must have {count} entries, one for each example. Received: shape {weights.shape}."
        )
    if not np.isfinite(weights).all():
        row = int(np.argmin(np.isfinite(weights)))
        raise ValueError(f"sample_weight must be finite numbers; that of row {row} is {weights[row]}.")
    return weights


def encode_targets(y: Any, labels: list[str], problem_type: str, count: int) -> np.ndarray:
    """Targets as an array: int32 (n,) classes, float32 (n, labels) for several at once, float32 (n, labels) numbers.

    Args:
        y: Class names or indices (n,) or (n, 1), see `class_index`, or one-hot rows (n, labels); lists of names, or
            rows of 0 and 1, for several at once; numbers for regression. See `target_rows`.
        labels: The names.
        problem_type: One of PROBLEM_TYPES.
        count: How many rows there must be.

    Raises:
        TypeError: y is not a sequence.
        ValueError: A label is unknown, a number is missing (NaN) or out of range, or there are too few or many rows.
    """
    rows = target_rows(y, count)
    if problem_type == SINGLE_LABEL:
        return np.array([_class_id(row, i, labels) for i, row in enumerate(rows)], dtype="int32")
    if problem_type == MULTI_LABEL:
        hot = [_multi_label(row, i, labels) for i, row in enumerate(rows)]
        return np.array(hot, dtype="float32").reshape(count, len(labels))
    try:
        values = np.array(rows, dtype="float32").reshape(count, len(labels))
    except (TypeError, ValueError) as error:
        raise ValueError(f"regression needs {len(labels)} number(s) for each example in y: {error}.") from error
    wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(wrong):
        raise ValueError(f"y[{wrong[0]}] is {rows[wrong[0]]!r}; regression targets must be finite numbers.")
    return values


def _class_id(row, index: int, labels: list[str]) -> int:
    if isinstance(row, (list, tuple)):
        if len(row) == 1:
            row = row[0]
        elif len(row) == len(labels) and sorted(map(whole_number, row), key=str) == [0] * (len(row) - 1) + [1]:
            return list(row).index(1)
        else:
            raise ValueError(
                f"y[{index}] must be one label, or a one-hot row of {len(labels)}. Received: {row!r:.80}. For several "
                'labels of one text, pass problem_type="multi_label_classification".'
            )
    return class_index(row, labels, f"y[{index}]")


def _multi_label(row, index: int, labels: list[str]) -> list[float]:
    names: list[Any] = list(row) if hasattr(row, "__iter__") and not isinstance(row, str) else [None]
    if all(isinstance(item, str) for item in names):
        unknown = [name for name in names if name not in labels]
        if unknown:
            raise ValueError(f"y[{index}] has {unknown[0]!r}, which is not one of the labels {labels}.")
        return [float(name in names) for name in labels]
    if len(names) != len(labels) or not all(item in (0, 1) for item in names):
        raise ValueError(
            f"y[{index}] must list label names, or hold {len(labels)} zeros and ones. Received: {row!r:.80}."
        )
    return [float(item) for item in names]


def answer_ids(examples: Examples) -> np.ndarray:
    """The index of each question's right choice, int32 (n,), from indices, letters ("B") or the choices' texts.

    Raises:
        ValueError: There are no answers, or an answer is not among the choices.
    """
    ids = []
    for number, (answer, row) in enumerate(zip(target_rows(examples.targets, len(examples)), examples["choices"])):
        index = row.index(answer) if answer in row else answer
        if isinstance(index, str) and index.isdigit():
            index = int(index)
        elif isinstance(index, str) and len(index) == 1 and "A" <= index <= "Z":
            index = ord(index) - ord("A")
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)) or not 0 <= index < len(row):
            raise ValueError(
                f"y[{number}] is {answer!r:.60}; it must be a choice, its letter, or from 0 to {len(row) - 1}."
            )
        ids.append(int(index))
    return np.array(ids, dtype="int32")


def label_ids(examples: Examples, labels: list[str], scheme: str | None) -> list[np.ndarray]:
    """The index of each word's label, int32 (words,) for each text; -1 where a word has none.

    Raises:
        ValueError: A label is unknown, tags are out of order, or there are too few or many.
    """
    rows = []
    targets = target_rows(examples.targets, len(examples))
    for number, (text, words, tags) in enumerate(zip(examples["text"], examples["words"], targets)):
        if isinstance(tags, Entities):
            tags = _tags_of_entities(tags.spans, number, text, words, labels, scheme)
        if len(tags) != len(words):
            raise ValueError(f"y[{number}] has {len(tags)} tags for {len(words)} words.")
        rows.append([_label_id(tag, f"y[{number}][{i}]", labels) for i, tag in enumerate(tags)])
    if scheme is not None:
        bio.check_tags(([labels[i] for i in row if i != IGNORED] for row in rows), scheme)
    return [np.array(row, dtype=np.int32) for row in rows]


def _label_id(tag, what: str, labels: list[str]) -> int:
    # -100 is what PyTorch's losses leave out.
    if tag is None or (not isinstance(tag, str) and tag in (-100, IGNORED)):
        return IGNORED
    return class_index(tag, labels, what)


def _tags_of_entities(
    spans, number: int, text: str, words: np.ndarray, labels: list[str], scheme: str | None
) -> list[str]:
    """Tags of words from entities in characters. An entity that begins or ends inside a word takes the whole word."""
    if scheme is None:
        raise ValueError(f"y holds entities; the labels {labels} mark none: name them O, B-… and I-…, or O and types.")
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
        for i, tag in zip(inside, bio.entity_tags(kind, len(inside), scheme)):
            tags[i] = tag
    return tags


def encode_sentence_targets(y: Any, kind: str | None, count: int) -> np.ndarray:
    """Targets of a sentence loss as an array: float32 numbers or vectors, or int32 classes; zeros where it needs none.

    Args:
        y: The targets, see `target_rows`.
        kind: What the loss compares with: "numbers", "vectors", "classes", or None.
        count: How many there must be.

    Raises:
        ValueError: There are none, too few or too many, or one is not finite.
    """
    if kind is None:
        if y is not None and len(y) != count:
            raise ValueError(f"x has {count} rows and y has {len(y)}; this loss needs no y.")
        return np.zeros(count, "float32")
    try:
        values = np.asarray(target_rows(y, count), dtype="float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold {kind} for this loss, as many for each row: {error}") from error
    if not np.isfinite(values).all():
        raise ValueError(f"y[{int(np.argwhere(~np.isfinite(values))[0][0])}] is not finite.")
    if kind == "classes" and (values.ndim != 1 or (values % 1).any() or (values < 0).any()):
        raise ValueError("y must hold class numbers from 0 on for this loss.")
    return values.astype("int32") if kind == "classes" else values
