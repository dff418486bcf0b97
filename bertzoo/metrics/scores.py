"""Scores of predictions: accuracy, F1 and Matthews' correlation of classes, correlations of numbers."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

AVERAGES = ("binary", "macro", "micro", "weighted")


def confusion_matrix(
    truth: Sequence[Hashable], predicted: Sequence[Hashable], classes: Sequence[Hashable]
) -> np.ndarray:
    """Counts predictions by true and predicted class.

    Args:
        truth, predicted: Labels, as many each.
        classes: All labels, in the order of the rows and columns.

    Returns:
        int (classes, classes): row = the true class, column = the predicted one.

    Raises:
        ValueError: The numbers of predictions and truths differ, or a value is not among the classes.

    Example:
        >>> bz.metrics.confusion_matrix(["a", "b", "b"], ["a", "b", "a"], ["a", "b"]).tolist()
        [[1, 0], [1, 1]]
    """
    truth, predicted = _listed(truth), _listed(predicted)
    if len(truth) != len(predicted):
        raise ValueError(f"there are {len(truth)} truths and {len(predicted)} predictions.")
    index = {name: i for i, name in enumerate(classes)}
    unknown = next((name for name in (*truth, *predicted) if name not in index), None)
    if unknown is not None:
        raise ValueError(f"{unknown!r} is not one of the classes {list(classes)}.")
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, ([index[name] for name in truth], [index[name] for name in predicted]), 1)
    return counts


def precision_recall_f1(confusion_counts: np.ndarray) -> np.ndarray:
    """float (classes, 3): precision, recall and F1 of each class, from confusion counts; 0 where there are no rows."""
    right = np.diag(confusion_counts).astype(float)
    precision = right / np.maximum(confusion_counts.sum(axis=0), 1)
    recall = right / np.maximum(confusion_counts.sum(axis=1), 1)
    score = 2 * right / np.maximum(confusion_counts.sum(axis=0) + confusion_counts.sum(axis=1), 1)
    return np.stack([precision, recall, score], axis=1)


def accuracy(truth: Sequence, predicted: Sequence) -> float:
    """The fraction of predictions that are right.

    Args:
        truth, predicted: Labels, as many each.

    Example:
        >>> bz.metrics.accuracy(["a", "b", "b", "a"], ["a", "b", "a", "a"])
        0.75
    """
    truth, predicted = _listed(truth), _listed(predicted)
    if len(truth) != len(predicted) or not truth:
        raise ValueError(f"there are {len(truth)} truths and {len(predicted)} predictions.")
    return sum(a == b for a, b in zip(truth, predicted)) / len(truth)


def f1(
    truth: Sequence[Hashable], predicted: Sequence[Hashable], average: str = "binary", positive_label: Hashable = 1
) -> float:
    """The harmonic mean of precision and recall.

    Args:
        truth, predicted: Labels, as many each.
        average: "binary": of the class `positive_label`, as GLUE's MRPC and QQP. "macro": the mean over classes.
            "weighted": weighted by their true rows. "micro": over all rows, which is the accuracy.
        positive_label: The class that counts for "binary".

    Example:
        >>> round(bz.metrics.f1([1, 1, 0, 0], [1, 0, 0, 0]), 3)
        0.667
    """
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {', '.join(AVERAGES)}. Received: {average!r}.")
    truth, predicted = _listed(truth), _listed(predicted)
    classes = sorted({*truth, *predicted}, key=lambda label: (str(type(label)), label))
    counts = confusion_matrix(truth, predicted, classes)
    if average == "micro":
        return float(np.trace(counts) / max(counts.sum(), 1))
    scores = precision_recall_f1(counts)[:, 2]
    if average == "binary":
        return float(scores[classes.index(positive_label)]) if positive_label in classes else 0.0
    if average == "weighted":
        return float((scores * counts.sum(axis=1)).sum() / max(counts.sum(), 1))
    return float(scores.mean()) if len(scores) else 0.0


def matthews_corrcoef(truth: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Matthews' correlation of two labellings (Gorodkin 2004 for more than two classes), as GLUE's CoLA; 0 where one of
    them is constant.

    Args:
        truth, predicted: Labels, as many each.

    Example:
        >>> bz.metrics.matthews_corrcoef([1, 1, 0, 0], [1, 1, 0, 0])
        1.0
    """
    truth, predicted = _listed(truth), _listed(predicted)
    classes = list(dict.fromkeys([*truth, *predicted]))
    counts = confusion_matrix(truth, predicted, classes).astype(float)
    rows, columns, total = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    spread = np.sqrt((total**2 - (columns**2).sum()) * (total**2 - (rows**2).sum()))
    return float((np.trace(counts) * total - rows @ columns) / spread) if spread > 0 else 0.0


def _listed(values) -> list:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def pearson(truth: Any, predicted: Any) -> float:
    """Pearson's correlation of two columns of numbers; NaN where one of them is constant.

    Args:
        truth, predicted: Numbers (n,) each, at least two.

    Example:
        >>> round(bz.metrics.pearson([1, 2, 3], [2, 4, 6]), 6)
        1.0
    """
    a, b = _columns(truth, predicted)
    a, b = a - a.mean(), b - b.mean()
    # Scaled first, so that the squares of very small numbers don't vanish.
    a, b = a / (np.abs(a).max() or 1.0), b / (np.abs(b).max() or 1.0)
    spread = np.sqrt((a @ a) * (b @ b))
    return float(np.clip((a @ b) / spread, -1.0, 1.0)) if spread > 0 else float("nan")


def spearman(truth: Any, predicted: Any) -> float:
    """Spearman's correlation: Pearson's of the ranks, equal values sharing their mean rank, as in GLUE's STS-B.

    Args:
        truth, predicted: Numbers (n,) each, at least two.

    Example:
        >>> round(bz.metrics.spearman([1, 2, 3, 4], [10, 20, 40, 30]), 6)
        0.8
    """
    a, b = _columns(truth, predicted)
    return pearson(_ranks(a), _ranks(b))


def _columns(truth, predicted) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(truth, dtype="float64"), np.asarray(predicted, dtype="float64")
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise ValueError(f"two columns of as many numbers are needed, at least two. Received: {a.shape} and {b.shape}.")
    return a, b


def _ranks(values: np.ndarray) -> np.ndarray:
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes + 1) / 2)[group]
