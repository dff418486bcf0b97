"""Means over what counts in a batch."""

from keras import ops


def weighted_mean(values, weights):
    """The sum of weighted values by the sum of weights, 0 where all weights are 0; tensors of one shape -> scalar."""
    return ops.sum(values * weights) / ops.maximum(ops.sum(weights), 1.0)


def hits(logits, labels):
    """Where the largest logit is the label's: (…, classes), int (…) -> float32 (…)."""
    return ops.cast(ops.cast(ops.argmax(logits, axis=-1), "int32") == ops.cast(labels, "int32"), "float32")
