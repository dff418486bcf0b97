"""Scores that `fit` reports as metrics."""

from typing import Any

import keras
from keras import ops

from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class MacroF1(keras.metrics.Metric):
    """The mean F1 of classes over all rows, 0 to 1, from logits: `compile(metrics=["accuracy", MacroF1()])` gives
    `val_macro_f1` in `fit`.

    For one class a row, of the classes that occur, as labels or as answers; for several labels a row (each named where
    its logit is above 0), of all labels. A class without a right answer has 0. As scikit-learn's
    `f1_score(average="macro", zero_division=0)`.
    """

    def __init__(self, name: str = "macro_f1", **kwargs):
        super().__init__(name=name, **kwargs)
        self.counts: keras.Variable | None = None

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Any = None) -> None:
        labels = y_pred.shape[-1]
        if self.counts is None:
            self.counts = self.add_variable(shape=(3, labels), initializer="zeros", name="counts")
        self.multi_label = len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == labels
        if self.multi_label:
            true, found = ops.cast(y_true, "float32"), ops.cast(y_pred > 0, "float32")
        else:
            true = ops.one_hot(ops.reshape(ops.cast(y_true, "int32"), (-1,)), labels)
            found = ops.one_hot(ops.reshape(ops.argmax(y_pred, axis=-1), (-1,)), labels)
        if sample_weight is not None:
            weights = ops.reshape(ops.cast(sample_weight, "float32"), (-1, 1))
            true, found, both = true * weights, found * weights, true * found * weights
        else:
            both = true * found
        self.counts.assign_add(ops.stack([ops.sum(part, axis=0) for part in (both, true, found)]))

    def result(self) -> Tensor:
        if self.counts is None:
            return ops.zeros(())
        both, true, found = self.counts[0], self.counts[1], self.counts[2]
        scores = ops.divide_no_nan(2 * both, true + found)
        occurs = ops.ones_like(true) if self.multi_label else ops.cast(true + found > 0, "float32")
        return ops.divide_no_nan(ops.sum(scores), ops.sum(occurs))

    def reset_state(self) -> None:
        if self.counts is not None:
            self.counts.assign(ops.zeros(self.counts.shape))
