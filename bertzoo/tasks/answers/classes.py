"""Labels, probabilities and values from the logits of a text classifier."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertzoo.tasks.probabilities import sigmoid, softmax
from bertzoo.types import MULTI_LABEL, REGRESSION


@dataclass(frozen=True)
class ClassReader:
    """Reads the logits of a `TextClassifier`.

    Args:
        labels: The names of the labels.
        problem_type: One of `bertzoo.types.PROBLEM_TYPES`.
        temperature: Logits are divided by it; see `TextClassifier.fit_temperature`.
        thresholds: Of several labels at once, the probability above which each is named; 0.5 where None.
    """

    labels: Sequence[str]
    problem_type: str
    temperature: float = 1.0
    thresholds: Sequence[float] | None = None

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """Probabilities, float64 (…, labels); of a regression, the values."""
        logits = np.asarray(logits, dtype="float64")
        if self.problem_type == REGRESSION:
            return logits
        return (sigmoid if self.problem_type == MULTI_LABEL else softmax)(logits / self.temperature)

    def __call__(self, logits: np.ndarray) -> dict[str, Any]:
        """The answer of `TextClassifier.classify` for logits (labels,)."""
        scores = dict(zip(self.labels, self.scores(logits).tolist()))
        if self.problem_type == REGRESSION:
            return {"value": next(iter(scores.values()))} if len(scores) == 1 else {"values": scores}
        if self.problem_type == MULTI_LABEL:
            limits = self.thresholds or [0.5] * len(self.labels)
            above = [name for (name, score), limit in zip(scores.items(), limits) if score > limit]
            return {"labels": above, "scores": scores}
        best = max(scores, key=scores.__getitem__)
        return {"label": best, "score": scores[best], "scores": scores}
