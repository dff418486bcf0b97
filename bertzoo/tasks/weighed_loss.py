"""A loss that is one mean by weights over all examples, in training, in evaluation and in the log."""

from typing import Any, ClassVar

import keras
from keras import ops

from bertzoo.tasks.training_batches import split_divisor


class WeighedLoss:
    """Mixed into tasks, before `keras.Model`."""

    # Whether a row has a loss for each of several tokens, weighed by the sample weights.
    per_token: ClassVar[bool] = False

    def loss_mean_options(self, default: bool) -> dict[str, Any]:
        """Of the `LossMean` that keeps the log's loss; `default`: whether the loss is the task's own."""
        return {}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training: bool = True):
        """The loss of a batch, which is also counted for the log."""
        weights, divisor = split_divisor(sample_weight)
        loss, weight = self.batch_loss(x, y, y_pred, weights, training), self.batch_weight(y_pred, weights)
        self._loss_tracker.add([loss], [weight])
        return loss if divisor is None else loss * (weight / divisor)

    def batch_loss(self, x, y, y_pred, sample_weight, training: bool):
        """The mean loss over a batch's examples by their weights, a scalar."""
        return super().compute_loss(x, y, y_pred, sample_weight, training=training)

    def batch_weight(self, y_pred, sample_weight):
        """The sum of the weights that `batch_loss` is a mean over, a scalar; each weighs 1 where there are none."""
        if sample_weight is not None:
            return ops.sum(ops.cast(sample_weight, "float32"))
        shape = ops.shape(y_pred)
        return ops.cast(shape[0] * shape[1] if self.per_token else shape[0], "float32")

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        weights, _ = split_divisor(sample_weight)
        if self.per_token:  # a sample each: Keras's metrics would divide the weights by the length of the rows
            per_row = keras.tree.map_structure(lambda part: len(part.shape) < 3, y_pred)  # a head for whole rows
            y, y_pred = (
                keras.tree.map_structure(lambda part, whole: part if whole else _flat(part), parts, per_row)
                for parts in (y, y_pred)
            )
            if weights is not None:
                weights = keras.tree.map_structure(lambda part: ops.reshape(part, (-1,)), weights)
        return super().compute_metrics(x, y, y_pred, weights)


def _flat(part):
    """(batch, tokens, …) -> (batch * tokens, …)."""
    return ops.reshape(part, (-1, *part.shape[2:]))
