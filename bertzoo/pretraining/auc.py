"""The area under the ROC curve, counted on the device."""

import keras
import numpy as np
from keras import ops

BINS, LIMIT = 2048, 10.0


@keras.saving.register_keras_serializable("bertzoo")
class LogitAuc(keras.metrics.Metric):
    """The chance that a positive has a higher logit than a negative, over all that was seen since the last reset.

    Logits are counted in 2,048 bins from -10 to 10, so that a batch costs one pass and nothing is stored; two in one
    bin count as half right. (Keras's AUC bins probabilities, of which nearly all are near 0 here.)
    """

    def __init__(self, name: str = "auc", **kwargs):
        super().__init__(name=name, **kwargs)
        self.counts = self.add_variable((2, BINS), initializer="zeros", dtype="float32", name="counts")

    def update_state(self, y_true, y_pred, sample_weight=None):
        """
        Args:
            y_true: int, 1 for positives and 0 for negatives; any shape.
            y_pred: Logits, of the same shape.
            sample_weight: 1 for what counts, 0 for the rest, of the same shape; all counts where None.
        """
        place = (ops.clip(ops.cast(y_pred, "float32"), -LIMIT, LIMIT) + LIMIT) * ((BINS - 1) / (2 * LIMIT))
        place = ops.cast(place, "int32") + ops.cast(y_true, "int32") * BINS
        weight = ops.ones_like(y_pred) if sample_weight is None else sample_weight
        found = ops.segment_sum(
            ops.reshape(ops.cast(weight, "float32"), (-1,)), ops.reshape(place, (-1,)), num_segments=2 * BINS
        )
        self.counts.assign_add(ops.reshape(found, (2, BINS)))

    def result(self):
        shares = self.counts / ops.maximum(ops.sum(self.counts, axis=1, keepdims=True), 1.0)
        below = ops.cumsum(shares[0]) - 0.5 * shares[0]
        return ops.sum(shares[1] * below)

    def reset_state(self):
        self.counts.assign(np.zeros((2, BINS), "float32"))
