"""Labels of a classification task, by name or number, to arrays; and what kind of problem they make."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertzoo.config import EncoderConfig

CLASSES = "single_label_classification"
SEVERAL = "multi_label_classification"
NUMBER = "regression"
PROBLEMS = (CLASSES, SEVERAL, NUMBER)


def label_names(labels: int | Sequence[str]) -> list[str]:
    """The names of the labels: as given, or LABEL_0, LABEL_1 … for a number.

    Raises:
        ValueError: There are no labels, one is no string, or two are alike.
    """
    if isinstance(labels, (int, np.integer)) and not isinstance(labels, bool) and labels >= 1:
        return [f"LABEL_{i}" for i in range(labels)]
    if isinstance(labels, str) or not isinstance(labels, Sequence) or not len(labels):
        raise ValueError(f"labels must be a number of classes or a list of their names; it is {labels!r}.")
    wrong = [name for name in labels if not isinstance(name, str)]
    if wrong or len(set(labels)) < len(labels):
        raise ValueError(f"labels must be different strings; they are {list(labels)!r}.")
    return list(labels)


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


def labels_for_file(labels: list[str]) -> dict[str, Any]:
    """The keys of config.json that hold the names of the labels."""
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }


def row_weights(sample_weight, count: int) -> np.ndarray | None:
    """Weights of `count` rows as float32 (n,); None stays None.

    Raises:
        ValueError: There are too few or many, or one is no finite number.
    """
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype="float32")
    if weights.shape != (count,):
        raise ValueError(f"sample_weight must have {count} entries, one a row; its shape is {weights.shape}.")
    if not np.isfinite(weights).all():
        place = int(np.argmin(np.isfinite(weights)))
        raise ValueError(f"sample_weight must be finite numbers; that of row {place} is {weights[place]}.")
    return weights


def encode_targets(y, labels: list[str], problem: str, count: int) -> np.ndarray:
    """Targets as an array: int32 (n,) classes, float32 (n, labels) for several at once, float32 (n, labels) numbers.

    Args:
        y: Class names or ids; lists of names, or rows of 0 and 1, for several at once; numbers for regression.
        labels: The names.
        problem: One of PROBLEMS.
        count: How many rows there must be.

    Raises:
        ValueError: A label is unknown, a number is missing (NaN) or out of range, or there are too few or many rows.
    """
    if y is None:
        raise ValueError("there are no targets: pass y, or a table with a column called label.")
    rows = y.tolist() if hasattr(y, "tolist") else list(y) if isinstance(y, (list, tuple)) else [y]
    if len(rows) != count:
        raise ValueError(f"x has {count} rows and y has {len(rows)}; they must be the same number.")
    if problem == CLASSES:
        return np.array([_class_id(row, i, labels) for i, row in enumerate(rows)], dtype="int32")
    if problem == SEVERAL:
        return np.array([_several(row, i, labels) for i, row in enumerate(rows)], dtype="float32").reshape(
            count, len(labels)
        )
    return _numbers(rows, len(labels))


def _class_id(row, index: int, labels: list[str]) -> int:
    if isinstance(row, str):
        if row not in labels:
            raise ValueError(f"y[{index}] is {row!r}, which is not one of the labels {labels}.")
        return labels.index(row)
    whole = (
        not isinstance(row, bool) and isinstance(row, (int, float, np.integer, np.floating)) and row == int_or_none(row)
    )
    if isinstance(row, bool) or whole:
        if 0 <= row < len(labels):
            return int(row)
        raise ValueError(f"y[{index}] is {row!r}; class ids run from 0 to {len(labels) - 1}.")
    raise ValueError(
        f"y[{index}] is {row!r:.60}; it must be one of {labels} or a class id from 0 to {len(labels) - 1}."
    )


def int_or_none(value) -> int | None:
    """The integer that a number is, or None."""
    return int(value) if np.isfinite(value) and value == np.floor(value) else None


def _several(row, index: int, labels: list[str]) -> list[float]:
    row = row.tolist() if hasattr(row, "tolist") else row
    if isinstance(row, str) or not hasattr(row, "__iter__"):
        raise ValueError(f"y[{index}] is {row!r}; with several labels at once, each row is a list of names.")
    if all(isinstance(item, str) for item in row):
        unknown = [name for name in row if name not in labels]
        if unknown:
            raise ValueError(f"y[{index}] has {unknown[0]!r}, which is not one of the labels {labels}.")
        return [float(name in row) for name in labels]
    if len(row) != len(labels) or not all(item in (0, 1) for item in row):
        raise ValueError(f"y[{index}] is {row!r:.80}; it must list label names, or hold {len(labels)} zeros and ones.")
    return [float(item) for item in row]


def _numbers(rows, width: int) -> np.ndarray:
    try:
        values = np.array(rows, dtype="float32").reshape(len(rows), width)
    except (TypeError, ValueError) as error:
        raise ValueError(f"regression needs {width} number(s) a row in y: {error}.") from error
    wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(wrong):
        raise ValueError(f"y[{wrong[0]}] is {rows[wrong[0]]!r}; regression targets must be finite numbers.")
    return values
