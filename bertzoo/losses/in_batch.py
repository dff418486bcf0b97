"""Losses whose negatives are the texts of the other examples of the batch."""

from typing import Any

import keras
from keras import ops

from bertzoo.layers.heads import l2_normalize
from bertzoo.losses.base import SentenceLoss
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class MultipleNegativesRanking(SentenceLoss):
    """Cross-entropy of finding an anchor's positive among the texts of all examples (Henderson et al. 2017, section 4).

    Examples are (anchor, positive) or (anchor, positive, negative, …). The smaller the batch, the easier: give it a
    large one. A text that occurs twice in a batch would be a negative of itself: `fit` keeps equal texts out of a
    batch, as long as others are left.

    Args:
        scale: Factor on the cosines before the softmax.
        symmetric: The mean of this and of finding each positive's anchor.
    """

    arguments = ("scale", "symmetric")
    target = None
    columns = (2, None)
    compares_examples = in_batch_negatives = True

    def __init__(self, scale: float = 20.0, symmetric: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.scale, self.symmetric = scale, symmetric

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        vectors = l2_normalize(y_pred)
        anchors, positives = vectors[:, 0], vectors[:, 1]
        width, count = ops.shape(vectors)[2], ops.shape(vectors)[0]
        # All positives first, then all first negatives, and so on.
        candidates = ops.reshape(ops.swapaxes(vectors[:, 1:], 0, 1), (-1, width))
        of_positives = self.scale * ops.sum(anchors * positives, axis=-1)
        total = ops.logsumexp(self.scale * ops.matmul(anchors, ops.transpose(candidates)), axis=1)
        if self.symmetric:
            backward = ops.logsumexp(self.scale * ops.matmul(positives, ops.transpose(anchors)), axis=1)
            total = (total + backward) / 2
        return ops.reshape(total - of_positives, (count,))
