"""The mean loss over all examples of an epoch or evaluation, whatever the batches."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bertzoo._keras_hooks import loss_tracker, set_loss_tracker
from bertzoo.types import Tensor

TOTALS, WEIGHTS = "loss_totals", "loss_weights"


class LossMean(keras.metrics.Metric):
    """Σ weight · loss / Σ weight over all examples so far; of a loss with several terms, the sum of their means.

    Keras weighs the loss of a batch by its rows, also where it is a mean over the tokens of those rows, so that its
    number depends on which rows share a batch. A model with this tracker calls `record` in its `compute_loss`.

    Args:
        terms: Number of terms, each a mean with weights of its own.
        perplexity: Whether to report the perplexity too, e to the power of the mean.
    """

    def __init__(self, terms: int = 1, perplexity: bool = False, name: str = "loss"):
        super().__init__(name=name)
        self.perplexity, self._added = perplexity, False
        self.shows_parts = False  # report the sums too, from which the means of parts of an epoch follow
        self.totals = self.add_variable(shape=(terms,), initializer="zeros", name="totals")
        self.weights = self.add_variable(shape=(terms,), initializer="zeros", name="weights")

    @classmethod
    def track(cls, model: keras.Model, **options) -> None:
        """Gives a compiled model such a mean in place of Keras's."""
        set_loss_tracker(model, cls(**options))

    @staticmethod
    def record(model: keras.Model, losses: Sequence, weights: Sequence) -> None:
        """As `add`, of the model's mean; nothing where it is not compiled, so that none is kept."""
        tracker = loss_tracker(model)
        if isinstance(tracker, LossMean):
            tracker.add(losses, weights)

    def add(self, losses: Sequence, weights: Sequence) -> None:
        """Adds a batch: for each term its mean and the sum of the weights that the mean is over, all scalars."""
        means = ops.stop_gradient(ops.stack([ops.cast(loss, "float32") for loss in losses]))
        sums = ops.stop_gradient(ops.stack([ops.cast(weight, "float32") for weight in weights]))
        self.totals.assign_add(means * sums)
        self.weights.assign_add(sums)
        self._added = True

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """What Keras's step calls with the batch's loss and rows: it counts where `compute_loss` added nothing."""
        if not self._added:
            self.add([values], [1.0 if sample_weight is None else sample_weight])
        self._added = False

    def result(self) -> Tensor:
        mean = ops.sum(ops.divide_no_nan(self.totals.value, self.weights.value))
        more = {"perplexity": ops.exp(mean)} if self.perplexity else {}
        if self.shows_parts:
            more.update({TOTALS: self.totals.value, WEIGHTS: self.weights.value})
        return {self.name: mean, **more} if more else mean
