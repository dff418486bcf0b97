"""A classifier's predictions, confidence and calibration (Guo et al. 2017, section 2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bertzoo.tasks.text_classifier import TextClassifier
from bertzoo.types import SINGLE_LABEL


@dataclass(frozen=True)
class ConfidenceBins:
    """Predictions in bins of confidence, of equal width from 0 to 1; a bin includes its upper edge.

    Attributes:
        edges: float64 (bins + 1,).
        counts: int (bins,).
        confidence, accuracy: float64 (bins,), means; NaN in empty bins.
    """

    edges: np.ndarray
    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def expected_calibration_error(self) -> float:
        """The expected calibration error: the mean of |accuracy - confidence| weighted by counts (equation 3)."""
        full = self.counts > 0
        gaps = np.abs(self.accuracy - self.confidence)[full]
        return float((gaps * self.counts[full]).sum() / self.counts.sum())


@dataclass(frozen=True)
class LabeledPredictions:
    """Predictions of a classifier.

    Attributes:
        texts: The texts; pairs as tuples.
        truth, predicted: Labels.
        confidence: float64 (n,), the probability of the predicted label.
    """

    texts: tuple
    truth: tuple[str, ...]
    predicted: tuple[str, ...]
    confidence: np.ndarray

    @property
    def is_correct(self) -> np.ndarray:
        """Whether each prediction is correct: bool (n,)."""
        return np.array([a == b for a, b in zip(self.truth, self.predicted)])

    def error_indices_by_confidence(self) -> list[int]:
        """The indices of the wrong predictions, the most confident first."""
        return [int(i) for i in np.argsort(-self.confidence, kind="stable") if not self.is_correct[i]]

    def bin_by_confidence(self, num_bins: int = 10) -> ConfidenceBins:
        """Counts, confidence and accuracy in `num_bins` bins.

        Raises:
            ValueError: `num_bins` is below 1.
        """
        if num_bins < 1:
            raise ValueError(f"num_bins must be at least 1. Received: {num_bins!r}.")
        edges = np.linspace(0, 1, num_bins + 1)
        bin_of = np.clip(np.searchsorted(edges, self.confidence, side="left") - 1, 0, num_bins - 1)
        counts = np.bincount(bin_of, minlength=num_bins)
        sums = [np.bincount(bin_of, values, num_bins) for values in (self.confidence, self.is_correct)]
        means = [np.divide(part, counts, out=np.full(num_bins, np.nan), where=counts > 0) for part in sums]
        return ConfidenceBins(edges, counts, *means)


def predict_with_confidence(
    classifier: TextClassifier, x: Any, y: Any = None, batch_size: int = 32
) -> LabeledPredictions:
    """A classifier's predictions and the true labels; its temperature is applied.

    Args:
        classifier: A single-label classifier of texts or pairs.
        x, y: Texts and labels in any form that `fit` takes.
        batch_size: Texts in a batch.

    Raises:
        ValueError: The classifier is not a single-label one, or there are no texts or labels.
    """
    problem = getattr(classifier, "problem_type", None)
    if problem != SINGLE_LABEL:
        raise ValueError(
            f"predict_with_confidence needs a single-label TextClassifier. Received: problem_type={problem!r}."
        )
    examples = classifier.data.parse([x] if isinstance(x, str) else x, y)
    if len(examples) == 0:
        raise ValueError("x is empty.")
    targets = classifier.data.encode_targets(examples)
    answers = classifier.classify(examples, batch_size=batch_size)
    texts, pairs = examples["text"], examples.get("second text")
    return LabeledPredictions(
        tuple(texts) if pairs is None else tuple(zip(texts, pairs)),
        tuple(classifier.labels[int(i)] for i in targets),
        tuple(answer["label"] for answer in answers),
        np.array([answer["score"] for answer in answers]),
    )
