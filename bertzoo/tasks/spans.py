"""The loss of finding a span, and the best spans."""

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable("bertzoo")
class SpanLoss(keras.losses.Loss):
    """The mean of two cross-entropies over the tokens of a row: where the span starts and where it ends (Devlin et al.
    2019, section 4.2).

    Targets are float (batch, length, 2): 1 at the right token, 0 elsewhere, -1 at padding, which can't be chosen;
    predictions are logits of this shape.
    """

    def call(self, y_true, y_pred):
        logs = ops.log_softmax(_without_padding(y_true, y_pred), axis=1)
        return -0.5 * ops.sum(ops.maximum(ops.cast(y_true, logs.dtype), 0.0) * logs, axis=(1, 2))


@keras.saving.register_keras_serializable("bertzoo")
def span_accuracy(y_true, y_pred):
    """Whether both ends of a span are right, float (batch,), for targets and predictions as in `SpanLoss`."""
    found = ops.argmax(_without_padding(y_true, y_pred), axis=1)
    return ops.cast(ops.all(found == ops.argmax(y_true, axis=1), axis=1), "float32")


def _without_padding(y_true, y_pred):
    return ops.where(ops.cast(y_true, "float32") < 0, -1e9, ops.cast(y_pred, "float32"))


def best_spans(
    starts: np.ndarray, ends: np.ndarray, own: slice, limit: int, count: int
) -> list[tuple[float, int, int]]:
    """The spans of highest score, (score, first token, last token), best first.

    Args:
        starts, ends: float (tokens,), the logits of a row's text.
        own: Which tokens a span may start at.
        limit: Most tokens in a span.
        count: How many to give.
    """
    first = np.arange(len(starts))[own]
    if not len(first):
        return []
    padded = np.concatenate([ends, np.full(limit, -np.inf)])
    scores = starts[first][:, None] + padded[first[:, None] + np.arange(limit)]  # (starts, lengths - 1)
    flat = scores.ravel()
    count = min(count, int(np.isfinite(flat).sum()))
    top = np.argpartition(-flat, count - 1)[:count]
    top = top[np.argsort(-flat[top], kind="stable")]
    return [(float(flat[i]), int(first[i // limit]), int(first[i // limit] + i % limit)) for i in top]
