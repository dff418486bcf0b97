"""What the training models of several networks share: masked batches, and losses that are means over tokens."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.models.encoder import Encoder
from bertzoo.text.masking import Masking
from bertzoo.training.metrics import LossMean
from bertzoo.training.optimizer import AdamW
from bertzoo.training.step import BackendStep
from bertzoo.types import Tensor


class MaskedTraining(BackendStep, keras.Model):
    """A model that trains on masked batches with a weighted sum of losses.

    A subclass has a `backbone` and a `masking`, and calls `add_losses` in its `compute_loss`.

    Args:
        masking: The masking.
        scores: Names of the metrics that are means over tokens.
        terms: Number of losses.
    """

    def __init__(self, masking: Masking, scores: Sequence[str], terms: int, **kwargs):
        super().__init__(**kwargs)
        self.masking, self.terms = masking, terms
        self.scores = {score: keras.metrics.Mean(name=score) for score in scores}

    @property
    def backbone(self) -> Encoder:
        """The encoder to keep."""
        raise NotImplementedError

    def default_optimizer(self) -> AdamW:
        """The optimizer of the source."""
        raise NotImplementedError

    def mask(self, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict]:
        """A batch, masked: the inputs with `mask_positions`, `mask_labels` and `mask_weights`."""
        inputs, labels, weights = self.masking(inputs, rng)
        return ({**inputs, "mask_labels": labels, "mask_weights": weights},)

    def update_score(self, name: str, value: Tensor, weight: Tensor) -> None:
        """Adds a batch to a metric: its mean, a scalar, and the sum of the weights in it."""
        self.scores[name].update_state(ops.stop_gradient(value), weight)

    def add_losses(self, losses: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
        """The sum of the losses, scalars that are means over weights with these sums, recorded for the mean loss."""
        LossMean.record(self, losses, weights)
        return sum(losses[1:], losses[0])

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        return self.get_metrics_result()

    def compile(self, optimizer: keras.optimizers.Optimizer | None = None, **kwargs) -> None:
        """As `keras.Model.compile`; the loss is the model's own, the default optimizer that of the source."""
        super().compile(optimizer=optimizer or self.default_optimizer(), **kwargs)
        LossMean.track(self, terms=self.terms)
        # TensorFlow traces the step twice if its first trace creates the moments.
        self.optimizer.build(self.trainable_variables)


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Σ weight · value / Σ weight, 0 where all weights are 0; two tensors of one shape -> scalar."""
    return ops.sum(values * weights) / ops.maximum(ops.sum(weights), 1.0)


def is_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """1 where no logit exceeds the label's: (…, classes), int (…) -> float32 (…)."""
    label_logits = ops.take_along_axis(logits, ops.cast(labels, "int32")[..., None], axis=-1)[..., 0]
    return ops.cast(label_logits >= ops.amax(logits, axis=-1), "float32")
