"""Labels and targets: names of labels, as arguments, in config.json and as keys of class weights; and what users pass
as targets, to arrays."""

import math
from collections.abc import Mapping, Set
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from bertzoo.data.entity_spans import tags_of_entities, wrong_tag_count
from bertzoo.data.parsing import Examples
from bertzoo.data.schemas import EntitySpans
from bertzoo.models.config import EncoderConfig
from bertzoo.text import tags as bio
from bertzoo.types import MULTI_LABEL, SINGLE_LABEL

IGNORED = -1  # the label of a word that counts in no loss

# ---- labels


def make_label_names(names_or_count: Any) -> list[str]:
    """The names of the labels: as given, or LABEL_0, LABEL_1 … for a number.

    Args:
        names_or_count: A number of classes; or the names, strings or integers, in a list, tuple, array or Series, or in
            a set, which is sorted.

    Raises:
        ValueError: There are no labels, one is neither a string nor an integer, or two are equal.
    """
    if isinstance(names_or_count, (int, np.integer)) and not isinstance(names_or_count, bool) and names_or_count >= 1:
        return [f"LABEL_{i}" for i in range(names_or_count)]
    names: list = []
    if isinstance(names_or_count, Set):
        names = sorted(names_or_count, key=None if all(isinstance(name, int) for name in names_or_count) else str)
    elif (
        not isinstance(names_or_count, (str, bytes, dict))
        and hasattr(names_or_count, "__len__")
        and hasattr(names_or_count, "__iter__")
    ):
        names = _host_rows(names_or_count)
    strange = any(isinstance(name, bool) or not isinstance(name, (str, int)) for name in names)
    if not names or strange or len(set(map(str, names))) < len(names):
        raise ValueError(
            "labels must be a number of classes or a list of different names, strings or integers. Received: "
            f"{names_or_count!r:.200}."
        )
    return [str(name) for name in names]


def _host_rows(values: Any) -> list:
    """The rows of a list, array, Series, one-column frame or tensor of any backend, as a list of Python values."""
    if isinstance(values, (list, tuple)):
        return [row.tolist() if hasattr(row, "tolist") else row for row in values]
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):  # a frame
        values = values.to_numpy()
    elif not hasattr(values, "tolist") and hasattr(values, "__array__"):  # a tensor of TensorFlow
        values = np.asarray(values)
    if getattr(values, "ndim", 1) == 0:
        values = values.reshape(1)
    rows = values.tolist() if hasattr(values, "tolist") else list(values)
    return [row.decode("utf-8") if isinstance(row, bytes) else row for row in rows]


def _class_index(value: Any, labels: list[str], what: str) -> int:
    """The index of a class given by its name or by its index.

    Where all labels are numbers ("1" … "5"), an integer is a name. Where only some are, an integer that may be a name
    and an index at once is an error.

    Args:
        value: The class.
        labels: The names, in order.
        what: What `value` is, for the error, such as "y[3]".

    Raises:
        ValueError: It is no class, or could be two.
    """
    if isinstance(value, (str, bool)) and str(value) in labels:
        return labels.index(str(value))
    numbers, all_numbers = _numbers_in(tuple(labels))
    number = _whole_number(value)
    by_name = numbers.get(number)
    by_index = number if number in range(len(labels)) and not all_numbers else None
    if by_name is not None and by_index is not None and by_name != by_index:
        raise ValueError(
            f"{what} is {value!r}, which may be the label {labels[by_name]!r} or the index of the label "
            f"{labels[by_index]!r}: pass labels as strings."
        )
    index = by_index if by_name is None else by_name
    if index is None:
        hint = ", which are numbers, so that an integer is a label and not an index"
        hint = hint if all_numbers else f" or an index from 0 to {len(labels) - 1}"
        raise ValueError(f"{what} must be one of the labels {_short(labels)}{hint}. Received: {value!r:.60}.")
    return index


def class_weight_array(class_weight: Mapping, labels: list[str]) -> np.ndarray:
    """Weights of all classes, float32 (classes,), from weights by name or index (see `_class_index`); 1 where left out.

    Raises:
        ValueError: A key is no class, two are the same class, or a weight is negative or not finite.
    """
    by_class: dict[int, float] = {}
    for key, value in class_weight.items():
        index = _class_index(key, labels, "a key of class_weight")
        if index in by_class:
            raise ValueError(
                f"class_weight names the class {labels[index]!r} twice. Received: {dict(class_weight)!r:.200}."
            )
        if not (isinstance(value, (int, float, np.number)) and math.isfinite(value) and value >= 0):
            raise ValueError(f"class_weight[{key!r}] must be a finite number of at least 0. Received: {value!r:.60}.")
        by_class[index] = float(value)
    return np.array([by_class.get(index, 1.0) for index in range(len(labels))], dtype="float32")


@cache
def _numbers_in(labels: tuple[str, ...]) -> tuple[dict[int | None, int], bool]:
    """Of the labels that are whole numbers, the number -> its index; and whether all labels are different ones."""
    numbers: dict[int | None, int] = {}
    for index, name in enumerate(labels):
        with suppress(ValueError):
            numbers.setdefault(_whole_number(float(name)), index)
    numbers.pop(None, None)
    return numbers, len(numbers) == len(labels)


def _whole_number(value: Any) -> int | None:
    """The integer that a number is, or None."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or not math.isfinite(value) or value % 1:
        return None
    return int(value)


def _short(labels: list[str], most: int = 20) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return f"{labels[:most]}{more}"


def labels_from_config(config: EncoderConfig) -> dict[str, list[str] | int]:
    """The option `labels` of a task, from id2label or else num_labels of its config.json; nothing where it has neither.

    Labels of a trained head need not have names, or different ones: the place of such a label is its name.

    Raises:
        ValueError: A key of id2label is no whole number.
    """
    named = config.extra.get("id2label")
    if not named:
        count = config.extra.get("num_labels")
        return {"labels": count} if count else {}
    wrong = [key for key in named if not str(key).isdecimal()]
    if wrong:
        raise ValueError(f"the keys of id2label must be whole numbers, the ids of labels. Received: {wrong[0]!r}.")
    names = ["" if named[key] is None else str(named[key]) for key in sorted(named, key=int)]
    return {"labels": [name if name and names.count(name) == 1 else f"LABEL_{i}" for i, name in enumerate(names)]}


def report_replaced_labels(labels: list[str], checkpoint_labels: list[str]) -> str | None:
    """What to report of labels that replace those of a file whose head is kept, None where there is nothing.

    Raises:
        ValueError: A name stands at another place than in the file, so that answers would be swapped.
    """
    if labels == checkpoint_labels or len(labels) != len(checkpoint_labels):
        return None
    moved = [name for name, before in zip(labels, checkpoint_labels) if name != before and name in checkpoint_labels]
    if moved:
        raise ValueError(
            f"labels are in another order than those of the trained head, {_short(checkpoint_labels)}: leave labels= "
            f"out, or pass new_head=True to train a new head. Received: {_short(labels)}."
        )
    pairs = [f"{before} -> {name}" for before, name in zip(checkpoint_labels, labels) if name != before]
    return f"labels of the file replaced: {', '.join(pairs[:10])}{' …' if len(pairs) > 10 else ''}"


def labels_to_config(labels: list[str]) -> dict[str, Any]:
    """The keys of config.json that hold the names of the labels."""
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }


# ---- targets


def target_rows(y: Any, num_rows: int) -> list:
    """The targets of `num_rows` examples: those of a list, array, Series, one-column frame or tensor.

    Raises:
        TypeError: y is not a sequence.
        ValueError: There are no targets, or too few or many.
    """
    if y is None:
        raise ValueError("there are no targets: pass y, or a table with a column that holds them, such as label.")
    if not hasattr(y, "__len__") or isinstance(y, (str, bytes, Set, Mapping)):
        raise TypeError(f"y must be a list, array, Series or tensor with a target for each row. Received: {y!r:.60}.")
    rows = _host_rows(y)
    if len(rows) != num_rows:
        raise ValueError(f"x has {num_rows} rows and y has {len(rows)}; they must be the same number.")
    return rows


def encode_sample_weight(sample_weight: Any, num_examples: int) -> np.ndarray | None:
    """Weights of `num_examples` examples as float32 (n,); None stays None.

    Raises:
        ValueError: There are too few or many, or one is no finite number.
    """
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype="float32")
    if weights.shape != (num_examples,):
        raise ValueError(
            f"sample_weight must have {num_examples} entries, one for each example. Received: shape {weights.shape}."
        )
    if not np.isfinite(weights).all():
        row = int(np.argmin(np.isfinite(weights)))
        raise ValueError(f"sample_weight must be finite numbers; that of row {row} is {weights[row]}.")
    return weights


def encode_targets(y: Any, labels: list[str], problem_type: str, num_rows: int) -> np.ndarray:
    """Targets as an array: int32 (n,) classes, float32 (n, labels) for several at once, float32 (n, labels) numbers.

    Args:
        y: Class names or indices (n,) or (n, 1), see `_class_index`, or one-hot rows (n, labels); lists of names, or
            rows of 0 and 1, for several at once; numbers for regression. See `target_rows`.
        labels: The names.
        problem_type: One of PROBLEM_TYPES.
        num_rows: How many rows there must be.

    Raises:
        TypeError: y is not a sequence.
        ValueError: A label is unknown, a number is missing (NaN) or out of range, or there are too few or many rows.
    """
    rows = target_rows(y, num_rows)
    if problem_type == SINGLE_LABEL:
        return np.array([_class_id(row, i, labels) for i, row in enumerate(rows)], dtype="int32")
    if problem_type == MULTI_LABEL:
        hot = [_multi_label(row, i, labels) for i, row in enumerate(rows)]
        return np.array(hot, dtype="float32").reshape(num_rows, len(labels))
    try:
        values = np.array(rows, dtype="float32").reshape(num_rows, len(labels))
    except (TypeError, ValueError) as error:
        raise ValueError(f"regression needs {len(labels)} number(s) for each example in y: {error}.") from error
    wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(wrong):
        raise ValueError(f"y[{wrong[0]}] must be a finite number for regression. Received: {rows[wrong[0]]!r}.")
    return values


def _class_id(row, index: int, labels: list[str]) -> int:
    if isinstance(row, (list, tuple)):
        if len(row) == 1:
            row = row[0]
        elif len(row) == len(labels) and sorted(map(_whole_number, row), key=str) == [0] * (len(row) - 1) + [1]:
            return list(row).index(1)
        else:
            raise ValueError(
                f"y[{index}] must be one label, or a one-hot row of {len(labels)}. Received: {row!r:.80}. For several "
                'labels of one text, pass problem_type="multi_label_classification".'
            )
    return _class_index(row, labels, f"y[{index}]")


def _multi_label(row, index: int, labels: list[str]) -> list[float]:
    names: list[Any] = list(row) if hasattr(row, "__iter__") and not isinstance(row, str) else [None]
    if all(isinstance(item, str) for item in names):
        unknown = [name for name in names if name not in labels]
        if unknown:
            raise ValueError(f"y[{index}] must list labels of {_short(labels)}. Received: {unknown[0]!r}.")
        return [float(name in names) for name in labels]
    if len(names) != len(labels) or not all(item in (0, 1) for item in names):
        raise ValueError(
            f"y[{index}] must list label names, or hold {len(labels)} zeros and ones. Received: {row!r:.80}."
        )
    return [float(item) for item in names]


def encode_choice_targets(examples: Examples) -> np.ndarray:
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


def encode_word_targets(examples: Examples, labels: list[str], scheme: str | None) -> list[np.ndarray]:
    """The index of each word's label, int32 (words,) for each text; -1 where a word has none.

    Raises:
        ValueError: A label is unknown, tags are out of order, or there are too few or many.
    """
    rows = []
    targets = target_rows(examples.targets, len(examples))
    for number, (text, words, tags) in enumerate(zip(examples["text"], examples["words"], targets)):
        if isinstance(tags, EntitySpans):
            tags = tags_of_entities(tags.spans, number, text, words, labels, scheme)
        if len(tags) != len(words):
            raise wrong_tag_count(number, len(tags), len(words))
        rows.append([_label_id(tag, f"y[{number}][{i}]", labels) for i, tag in enumerate(tags)])
    if scheme is not None:
        bio.check_tag_order(([labels[i] for i in row if i != IGNORED] for row in rows), scheme)
    return [np.array(row, dtype=np.int32) for row in rows]


def _label_id(tag, what: str, labels: list[str]) -> int:
    # -100 is what PyTorch's losses leave out.
    if tag is None or (not isinstance(tag, str) and tag in (-100, IGNORED)):
        return IGNORED
    return _class_index(tag, labels, what)


def encode_sentence_targets(y: Any, target_kind: str | None, num_rows: int) -> np.ndarray:
    """Targets of a sentence loss as an array: float32 numbers or vectors, or int32 classes; zeros where it needs none.

    Args:
        y: The targets, see `target_rows`.
        target_kind: What the loss compares with: "numbers", "vectors", "classes", or None.
        num_rows: How many there must be.

    Raises:
        ValueError: There are none, too few or too many, or one is not finite.
    """
    if target_kind is None:
        if y is not None and len(y) != num_rows:
            raise ValueError(f"x has {num_rows} rows and y has {len(y)}; this loss needs no y.")
        return np.zeros(num_rows, "float32")
    try:
        values = np.asarray(target_rows(y, num_rows), dtype="float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold {target_kind} for this loss, as many for each row: {error}") from error
    if not np.isfinite(values).all():
        raise ValueError(f"y[{int(np.argwhere(~np.isfinite(values))[0][0])}] is not finite.")
    if target_kind == "classes" and (values.ndim != 1 or (values % 1).any() or (values < 0).any()):
        raise ValueError("y must hold class numbers from 0 on for this loss.")
    return values.astype("int32") if target_kind == "classes" else values
