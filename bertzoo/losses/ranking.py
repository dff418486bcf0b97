"""The base of the losses of rerankers, and those that compare the scores of a query's documents one by one."""

from typing import Any

import keras
from keras import ops

from bertzoo.losses.base import ConfiguredLoss, teacher_margins
from bertzoo.types import Tensor

FAR_BELOW = -1e16  # the score of a document that is none


class RankingLoss(ConfiguredLoss):
    """The base of losses of a query's documents, for `CrossEncoder`.

    They take `y_true` and `y_pred`, float (batch, documents): labels, and the model's scores as logits. Where a query
    has fewer documents than another, labels are NaN at those that are none. Numbers and defaults are those of
    sentence-transformers.

    Attributes:
        target: What labels are: "labels", a number for each document; "margins", the same or how much better the first
            document is than each other; or None, where the first document is the right one.
        num_negatives: How many documents of other queries each query gets besides its own.
    """

    target: str | None = "labels"
    num_negatives: int = 0

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        present = y_true == y_true  # not NaN
        return self.list_losses(ops.where(present, y_true, 0.0), ops.where(present, y_pred, FAR_BELOW), present)

    def list_losses(self, labels: Tensor, scores: Tensor, present: Tensor) -> Tensor:
        """The loss of each query, (batch,), whose mean is that of the batch.

        Args:
            labels: (batch, documents), 0 where there is no document.
            scores: (batch, documents), far below all others where there is none.
            present: bool (batch, documents), whether there is a document.
        """
        raise NotImplementedError


def share_of_batch(sums: Tensor, counts: Tensor) -> Tensor:
    """Sums of queries (batch,) of so many terms -> numbers whose mean is the mean of all terms."""
    count = ops.cast(ops.shape(sums)[0], sums.dtype)
    return sums * count / ops.maximum(ops.sum(ops.cast(counts, sums.dtype)), 1.0)


@keras.saving.register_keras_serializable("bertzoo")
class ScoreMarginMSE(RankingLoss):
    """(how much higher the first document's score is than each other's - what a teacher says of it)² (Hofstätter et al.
    2020).

    The first document is the positive. Labels are the teacher's margins, one for each other document, or its scores of
    all documents. All queries have equally many.
    """

    target = "margins"

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        margins = teacher_margins(y_true, y_pred.shape[1] - 1)
        return ops.mean(ops.square(y_pred[:, :1] - y_pred[:, 1:] - margins), axis=1)


@keras.saving.register_keras_serializable("bertzoo")
class ADRMSE(RankingLoss):
    """(rank - approximate rank)² / log₂(1 + rank) over all documents, where a document's approximate rank is 1 + Σ σ(α
    × (score of another - its score)) over the others (Schlatt et al. 2025).

    Args:
        alpha: How steep the step is that counts another document as higher.
    """

    arguments = ("alpha",)

    def __init__(self, alpha: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.alpha = alpha

    def list_losses(self, labels: Tensor, scores: Tensor, present: Tensor) -> Tensor:
        real = ops.cast(present, scores.dtype)
        higher = ops.sigmoid(self.alpha * (scores[:, None, :] - scores[:, :, None])) * real[:, None, :]
        approximate = 1.0 + ops.sum(higher, axis=2) - 0.5 * real
        differences = labels[:, None, :] - labels[:, :, None]
        # Documents of the same label, itself among them, share the mean of their ranks.
        above, equal = (
            ops.sum(ops.cast(of, scores.dtype) * real[:, None, :], axis=2) for of in (differences > 0, differences == 0)
        )
        ranks = above + (equal + 1.0) / 2.0
        losses = ops.square(ranks - approximate) / (ops.log(ranks + 1.0) / ops.log(2.0)) * real
        return share_of_batch(ops.sum(losses, axis=1), present)
