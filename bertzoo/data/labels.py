"""The labels of a task: their names, as arguments, in config.json, and as keys of class weights."""

import math
from collections.abc import Mapping, Set
from functools import cache
from typing import Any

import numpy as np

from bertzoo.models.config import EncoderConfig


def label_names(labels: Any) -> list[str]:
    """The names of the labels: as given, or LABEL_0, LABEL_1 … for a number.

    Args:
        labels: A number of classes; or the names, strings or integers, in a list, tuple, array or Series, or in a set,
            which is sorted.

    Raises:
        ValueError: There are no labels, one is neither a string nor an integer, or two are equal.
    """
    if isinstance(labels, (int, np.integer)) and not isinstance(labels, bool) and labels >= 1:
        return [f"LABEL_{i}" for i in range(labels)]
    names = None
    if isinstance(labels, Set):
        numbers = all(isinstance(name, int) for name in labels)
        names = sorted(labels, key=None if numbers else str)
    elif not isinstance(labels, (str, bytes, dict)) and hasattr(labels, "__len__") and hasattr(labels, "__iter__"):
        names = host_rows(labels)
    if not names:
        raise ValueError(f"labels must be a number of classes or a list of their names. Received: {labels!r:.200}.")
    wrong = [name for name in names if isinstance(name, bool) or not isinstance(name, (str, int))]
    names = [str(name) for name in names]
    if wrong or len(set(names)) < len(names):
        what = f"{wrong[0]!r:.60} is neither a string nor an integer" if wrong else "two are equal"
        raise ValueError(f"labels must be different strings; {what}. Received: {names!r:.200}.")
    return names


def host_rows(values: Any) -> list:
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


def class_index(value: Any, labels: list[str], what: str) -> int:
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
    if isinstance(value, bool) and str(value) in labels:
        value = str(value)
    if isinstance(value, str):
        if value in labels:
            return labels.index(value)
        raise ValueError(f"{what} must be one of the labels {_short(labels)}. Received: {value!r:.60}.")
    names, all_numbers = _numbers_in(tuple(labels))
    number = whole_number(value)
    if number is not None:
        by_name = names.get(number)
        by_index = number if 0 <= number < len(labels) and not all_numbers else None
        if by_name is not None and by_index is not None and by_name != by_index:
            raise ValueError(
                f"{what} is {value!r}, which may be the label {labels[by_name]!r} or the index of the label "
                f"{labels[by_index]!r}: pass labels as strings."
            )
        index = by_index if by_name is None else by_name
        if index is not None:
            return index
    hint = ", which are numbers, so that an integer is a label and not an index" if all_numbers else ""
    hint = hint or f" or an index from 0 to {len(labels) - 1}"
    raise ValueError(f"{what} must be one of the labels {_short(labels)}{hint}. Received: {value!r:.60}.")


def class_weights(weights: Mapping, labels: list[str]) -> np.ndarray:
    """Weights of all classes, float32 (classes,), from weights by name or index (see `class_index`); 1 where left out.

    Raises:
        ValueError: A key is no class, two are the same class, or a weight is negative or not finite.
    """
    by_class: dict[int, float] = {}
    for key, value in weights.items():
        index = class_index(key, labels, "a key of class_weight")
        if index in by_class:
            raise ValueError(f"class_weight names the class {labels[index]!r} twice. Received: {dict(weights)!r:.200}.")
        if not (isinstance(value, (int, float, np.number)) and math.isfinite(value) and value >= 0):
            raise ValueError(f"class_weight[{key!r}] must be a finite number of at least 0. Received: {value!r:.60}.")
        by_class[index] = float(value)
    return np.array([by_class.get(index, 1.0) for index in range(len(labels))], dtype="float32")


@cache
def _numbers_in(labels: tuple[str, ...]) -> tuple[dict[int, int], bool]:
    """Of the labels that are whole numbers, the number -> its index; and whether all labels are different ones."""
    numbers: dict[int, int] = {}
    for index, name in enumerate(labels):
        try:
            number = whole_number(float(name))
        except ValueError:
            continue
        if number is not None:
            numbers.setdefault(number, index)
    return numbers, len(numbers) == len(labels)


def whole_number(value: Any) -> int | None:
    """The integer that a number is, or None."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or not math.isfinite(value) or value % 1:
        return None
    return int(value)


def _short(labels: list[str], most: int = 20) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return f"{labels[:most]}{more}"


def labels_in_file(config: EncoderConfig) -> dict[str, list[str] | int]:
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
        raise ValueError(f"the keys of id2label must be the ids of labels; one is {wrong[0]!r}.")
    names = ["" if named[key] is None else str(named[key]) for key in sorted(named, key=int)]
    return {"labels": [name if name and names.count(name) == 1 else f"LABEL_{i}" for i, name in enumerate(names)]}


def check_order(labels: list[str], in_file: list[str]) -> str | None:
    """What to report of labels that replace those of a file whose head is kept, None where there is nothing.

    Raises:
        ValueError: A name stands at another place than in the file, so that answers would be swapped.
    """
    if labels == in_file or len(labels) != len(in_file):
        return None
    moved = [name for name, before in zip(labels, in_file) if name != before and name in in_file]
    if moved:
        raise ValueError(
            f"labels are in another order than those of the trained head, {_short(in_file)}: leave labels= out, or "
            f"pass new_head=True to train a new head. Received: {_short(labels)}."
        )
    pairs = [f"{before} -> {name}" for before, name in zip(in_file, labels) if name != before]
    return f"labels of the file replaced: {', '.join(pairs[:10])}{' …' if len(pairs) > 10 else ''}"


def labels_for_file(labels: list[str]) -> dict[str, Any]:
    """The keys of config.json that hold the names of the labels."""
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }
