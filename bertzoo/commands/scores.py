"""How good predictions are: by class, and for numbers."""

import numpy as np


def confusion(truth: list[str], predicted: list[str], classes: list[str]) -> np.ndarray:
    """int (classes, classes): row = the true class, column = the predicted one."""
    place = {name: i for i, name in enumerate(classes)}
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, ([place[name] for name in truth], [place[name] for name in predicted]), 1)
    return counts


def by_class(counts: np.ndarray) -> np.ndarray:
    """float (classes, 3): precision, recall and F1 of each class, from confusion counts; 0 where there are no rows."""
    right = np.diag(counts).astype(float)
    precision = right / np.maximum(counts.sum(axis=0), 1)
    recall = right / np.maximum(counts.sum(axis=1), 1)
    f1 = 2 * right / np.maximum(counts.sum(axis=0) + counts.sum(axis=1), 1)
    return np.stack([precision, recall, f1], axis=1)


def of_numbers(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Mean absolute error and the correlations of two float (n,); NaN for these where one of them is constant."""
    return {
        "mean absolute error": float(np.abs(truth - predicted).mean()),
        "Pearson correlation": _pearson(truth, predicted),
        "Spearman correlation": _pearson(_ranks(truth), _ranks(predicted)),
    }


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    spread = np.sqrt((a**2).sum() * (b**2).sum())
    return float((a * b).sum() / spread) if spread > 0 else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share their mean rank."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes + 1) / 2)[group]
