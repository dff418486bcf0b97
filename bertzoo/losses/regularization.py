"""A term that spreads vectors over their space."""

from typing import Any

import keras
from keras import ops

from bertzoo.layers.heads import l2_normalize
from bertzoo.losses.base import SentenceLoss, WrappedLoss
from bertzoo.losses.names import get_sentence_loss
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class GlobalOrthogonalRegularization(WrappedLoss):
    """A loss plus how far the cosines of different examples are from those of random directions, whose mean is 0 and
    whose mean square 1 / width (Zhang et al. 2017).

    Args:
        loss: The loss, a name as `SentenceEncoder.compile` takes it, or one of these losses.
        mean_weight: Factor on the square of the mean cosine.
        second_moment_weight: Factor on max(0, the mean square of the cosines - 1 / width).
        aggregation: Whether terms of an example's texts are averaged, "mean", or added, "sum".

    Raises:
        ValueError: `aggregation` is unknown, or the loss can't be wrapped.
    """

    arguments = ("loss", "mean_weight", "second_moment_weight", "aggregation")
    wraps_token_vectors = False

    def __init__(
        self,
        loss: str | SentenceLoss = "multiple_negatives",
        mean_weight: float = 1.0,
        second_moment_weight: float = 1.0,
        aggregation: str = "mean",
        **kwargs: Any,
    ):
        super().__init__(get_sentence_loss(loss), **kwargs)
        if aggregation not in ("mean", "sum"):
            raise ValueError(f'aggregation must be "mean" or "sum". Received: {aggregation!r}.')
        self.mean_weight, self.second_moment_weight = mean_weight, second_moment_weight
        self.aggregation, self.compares_examples = aggregation, True

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        vectors = l2_normalize(y_pred if len(y_pred.shape) == 3 else y_pred[:, None])
        count = ops.cast(ops.shape(vectors)[0], vectors.dtype)
        pairs = ops.maximum(count * (count - 1), 1.0)
        # Of all pairs, the sum of the cosines is |Σ v|², and that of their squares |Σ v vᵀ|²; 1 of a text with itself.
        cosines = ops.sum(ops.square(ops.sum(vectors, axis=0)), axis=1) - count
        moments = ops.einsum("bcd,bce->cde", vectors, vectors)
        squares = ops.sum(ops.square(moments), axis=(1, 2)) - count
        terms = self.mean_weight * ops.square(cosines / pairs)
        terms = terms + self.second_moment_weight * ops.relu(squares / pairs - 1.0 / vectors.shape[2])
        return self.loss.call(y_true, y_pred) + (ops.mean(terms) if self.aggregation == "mean" else ops.sum(terms))
