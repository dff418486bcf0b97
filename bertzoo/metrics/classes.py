"""Scores of classes: accuracy, F1, Matthews' correlation."""

from collections.abc import Hashable, Sequence

import numpy as np

AVERAGES = ("binary", "macro", "micro", "weighted")


def confusion_matrix(
    truth: Sequence[Hashable], predicted: Sequence[Hashable], classes: Sequence[Hashable]
) -> np.ndarray:
    """int (classes, classes): row = the true class, column = the predicted one.

    Raises:
        ValueError: The numbers of predictions and truths differ, or a value is not among the classes.
    """
    truth, predicted = _listed(truth), _listed(predicted)
    if len(truth) != len(predicted):
        raise ValueError(f"there are {len(truth)} truths and {len(predicted)} predictions.")
    place = {name: i for i, name in enumerate(classes)}
    unknown = next((name for name in (*truth, *predicted) if name not in place), None)
    if unknown is not None:
        raise ValueError(f"{unknown!r} is not one of the classes {list(classes)}.")
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, ([place[name] for name in truth], [place[name] for name in predicted]), 1)
    return counts


def precision_recall_f1(counts: np.ndarray) -> np.ndarray:
    """float (classes, 3): precision, recall and F1 of each class, from confusion counts; 0 where there are no rows."""
    right = np.diag(counts).astype(float)
    precision = right / np.maximum(counts.sum(axis=0), 1)
    recall = right / np.maximum(counts.sum(axis=1), 1)
    score = 2 * right / np.maximum(counts.sum(axis=0) + counts.sum(axis=1), 1)
    return np.stack([precision, recall, score], axis=1)


def accuracy(truth: Sequence, predicted: Sequence) -> float:
    """The share of predictions that are right."""
    truth, predicted = _listed(truth), _listed(predicted)
    if len(truth) != len(predicted) or not truth:
        raise ValueError(f"there are {len(truth)} truths and {len(predicted)} predictions.")
    return sum(a == b for a, b in zip(truth, predicted)) / len(truth)


def f1(
    truth: Sequence[Hashable], predicted: Sequence[Hashable], average: str = "binary", positive: Hashable = 1
) -> float:
    """The harmonic mean of precision and recall.

    Args:
        truth, predicted: Labels, as many each.
        average: "binary": of the class `positive`, as GLUE's MRPC and QQP. "macro": the mean over classes. "weighted":
            weighted by their true rows. "micro": over all rows, which is the accuracy.
        positive: The class that counts for "binary".
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
        return float(scores[classes.index(positive)]) if positive in classes else 0.0
    if average == "weighted":
        return float((scores * counts.sum(axis=1)).sum() / max(counts.sum(), 1))
    return float(scores.mean()) if len(scores) else 0.0


def matthews_corrcoef(truth: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Matthews' correlation of two labellings (Gorodkin 2004 for more than two classes), as GLUE's CoLA; 0 where one of
    them is constant."""
    truth, predicted = _listed(truth), _listed(predicted)
    classes = list(dict.fromkeys([*truth, *predicted]))
    counts = confusion_matrix(truth, predicted, classes).astype(float)
    rows, columns, total = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    spread = np.sqrt((total**2 - (columns**2).sum()) * (total**2 - (rows**2).sum()))
    return float((np.trace(counts) * total - rows @ columns) / spread) if spread > 0 else 0.0


def _listed(values) -> list:
    return values.tolist() if hasattr(values, "tolist") else list(values)
