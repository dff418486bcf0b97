"""Keras metrics that `fit` reports: the mean loss, and macro F1."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bertzoo._keras_hooks import loss_tracker, set_loss_tracker
from bertzoo.types import Tensor

TOTALS, WEIGHTS = "loss_totals", "loss_weights"


class LossMean(keras.metrics.Metric):
    """Σ weight · loss / Σ weight over all examples so far; of a loss with several terms, the sum of their means.

    Keras weights the loss of a batch by its number of examples even if it is a mean over their tokens, so that the
    result depends on which examples share a batch. A model with this tracker calls `record_batch` in its
    `compute_loss`.

    Args:
        num_terms: Number of terms, each a mean with weights of its own.
        perplexity: Whether to report the perplexity too, e to the power of the mean.
    """

    def __init__(self, num_terms: int = 1, perplexity: bool = False, name: str = "loss"):
        super().__init__(name=name)
        self.perplexity, self._recorded = perplexity, False
        self.reports_sums = False  # report the sums too, from which the means over some of the steps follow
        self.totals = self.add_variable(shape=(num_terms,), initializer="zeros", name="totals")
        self.weights = self.add_variable(shape=(num_terms,), initializer="zeros", name="weights")

    @classmethod
    def attach(cls, model: keras.Model, **options: Any) -> None:
        """Gives a compiled model such a mean in place of Keras's."""
        set_loss_tracker(model, cls(**options))

    @staticmethod
    def record_batch(model: keras.Model, losses: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
        """Adds a batch to a model's mean, if the model is compiled.

        Args:
            model: The model.
            losses: The mean of each term, scalars.
            weights: The sum of the weights that each mean is over, scalars.
        """
        tracker = loss_tracker(model)
        if isinstance(tracker, LossMean):
            tracker._add(losses, weights)
            tracker._recorded = True

    def _add(self, losses, weights) -> None:
        means, sums = (
            ops.stop_gradient(ops.stack([ops.cast(value, "float32") for value in values]))
            for values in (losses, weights)
        )
        self.totals.assign_add(means * sums)
        self.weights.assign_add(sums)

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Adds a batch's loss and number of examples, as Keras's step does, unless `compute_loss` recorded it."""
        if not self._recorded:
            self._add([values], [1.0 if sample_weight is None else sample_weight])
        self._recorded = False

    def result(self) -> Tensor:
        mean = ops.sum(ops.divide_no_nan(self.totals.value, self.weights.value))
        more = {"perplexity": ops.exp(mean)} if self.perplexity else {}
        if self.reports_sums:
            more.update({TOTALS: self.totals.value, WEIGHTS: self.weights.value})
        return {self.name: mean, **more} if more else mean


@keras.saving.register_keras_serializable("bertzoo")
class MacroF1(keras.metrics.Metric):
    """The mean F1 of classes over all examples, 0 to 1, from logits: `compile(metrics=["accuracy", MacroF1()])` gives
    `val_macro_f1` in `fit`.

    Of single-label examples, the mean is over the classes that occur, as labels or as predictions; of multi-label ones
    (a label is predicted where its logit is above 0), over all labels. A class without a correct prediction has 0. As
    scikit-learn's `f1_score(average="macro", zero_division=0)`.

    Args:
        name: The metric's name in the log.
        kwargs: Those of `keras.metrics.Metric`.

    Example:
        >>> metric = bz.training.MacroF1()
        >>> metric.update_state(np.array([0, 1, 1]), np.array([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]]))
        >>> round(float(metric.result()), 3)
        0.667
    """

    def __init__(self, name: str = "macro_f1", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self.counts: keras.Variable | None = None  # for each class: correct predictions, labels, predictions

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Any = None) -> None:
        """Adds a batch.

        Args:
            y_true: Classes, int (batch,) or (batch, 1); or 0 and 1 for each label, (batch, labels).
            y_pred: Logits (batch, labels).
            sample_weight: Weights (batch,).
        """
        labels = y_pred.shape[-1]
        if self.counts is None:
            self.counts = self.add_variable(shape=(3, labels), initializer="zeros", name="counts")
        self.multi_label = len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == labels
        if self.multi_label:
            true, predicted = ops.cast(y_true, "float32"), ops.cast(y_pred > 0, "float32")
        else:
            # Not `ops.one_hot`, for which PyTorch waits to read the least and the greatest class.
            classes = ops.arange(labels, dtype="int32")
            true = ops.cast(ops.reshape(ops.cast(y_true, "int32"), (-1, 1)) == classes, "float32")
            predicted = ops.cast(ops.argmax(y_pred, axis=-1)[:, None] == classes, "float32")
        counts = ops.stack([true * predicted, true, predicted])
        if sample_weight is not None:
            counts = counts * ops.reshape(ops.cast(sample_weight, "float32"), (-1, 1))
        self.counts.assign_add(ops.sum(counts, axis=1))

    def result(self) -> Tensor:
        if self.counts is None:
            return ops.zeros(())
        correct, true, predicted = self.counts[0], self.counts[1], self.counts[2]
        scores = ops.divide_no_nan(2 * correct, true + predicted)
        occurs = ops.ones_like(true) if self.multi_label else ops.cast(true + predicted > 0, "float32")
        return ops.divide_no_nan(ops.sum(scores), ops.sum(occurs))
