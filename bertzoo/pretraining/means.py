"""Means over what counts in a batch."""

from keras import ops


def weighted_mean(values, weights):
    """The sum of weighted values by the sum of weights, 0 where all weights are 0; tensors of one shape -> scalar."""
    return ops.sum(values * weights) / ops.maximum(ops.sum(weights), 1.0)


def hits(logits, labels):
    """Where no logit is larger than the label's: (…, classes), int (…) -> float32 (…)."""
    own = ops.take_along_axis(logits, ops.cast(labels, "int32")[..., None], axis=-1)[..., 0]
    return ops.cast(own >= ops.amax(logits, axis=-1), "float32")
