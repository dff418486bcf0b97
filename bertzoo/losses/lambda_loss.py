"""Losses of rerankers over pairs of a query's documents, weighed by what swapping them would change."""

import math
from typing import Any

import keras
from keras import ops

from bertzoo.losses.ranking import RankingLoss, share_of_batch
from bertzoo.types import Tensor

WEIGHTINGS = (None, "ndcg1", "ndcg2", "lambdarank", "ndcg2++")


@keras.saving.register_keras_serializable("bertzoo")
class LambdaLoss(RankingLoss):
    """The mean of -weight × log₂ σ(sigma × (score - score of a less relevant document)) over pairs of a query's
    documents (Wang et al. 2018, "The LambdaLoss framework for ranking metric optimization").

    Labels are grades of relevance, such as 0 to 3.

    Args:
        weighting: What pairs are weighed by: None, "ndcg1", "ndcg2", "lambdarank", or "ndcg2++", the last plus `mu`
            times "ndcg2". With "ndcg1" all pairs count, not only those of unlike relevance.
        mu: Factor on the "ndcg2" weights in "ndcg2++".
        k: Pairs without a document among the first k, as the model ranks them, do not count; all do where None.
        sigma: Factor on differences of scores.

    Raises:
        ValueError: The weighting is unknown.

    Example:
        >>> scores = np.array([[2.0, 1.0, 0.0]])  # of three documents of a query
        >>> loss = bz.losses.LambdaLoss()
        >>> float(loss(np.array([[2, 1, 0]]), scores)) < float(loss(np.array([[0, 1, 2]]), scores))
        True
    """

    arguments: tuple[str, ...] = ("weighting", "mu", "k", "sigma")

    def __init__(
        self,
        weighting: str | None = "ndcg2++",
        mu: float = 10.0,
        k: int | None = None,
        sigma: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if weighting not in WEIGHTINGS:
            raise ValueError(f"weighting must be one of {', '.join(map(str, WEIGHTINGS))}. Received: {weighting!r}.")
        if k is not None and k < 1:
            raise ValueError(f"k must be at least 1, or None. Received: {k!r}.")
        self.weighting, self.mu, self.k, self.sigma = weighting, mu, k, sigma

    def list_losses(self, labels: Tensor, scores: Tensor, present: Tensor) -> Tensor:
        order = ops.argsort(-scores, axis=1)  # documents as the model ranks them; those that are none come last
        scores, grades, present = (ops.take_along_axis(x, order, axis=1) for x in (scores, labels, present))
        ranks = ops.arange(1, ops.shape(scores)[1] + 1, dtype="float32")
        first = ranks <= (self.k or math.inf)
        counted = present[:, :, None] & present[:, None, :] & (first[:, None] | first[None, :])[None]
        if self.weighting != "ndcg1":
            counted = counted & (grades[:, :, None] > grades[:, None, :])
        differences = ops.clip(scores[:, :, None] - scores[:, None, :], -1e8, 1e8)
        losses = -self._weights(labels, grades, ranks) * ops.log_sigmoid(self.sigma * differences) / math.log(2)
        sums = ops.sum(ops.where(counted, losses, 0.0), axis=(1, 2))
        return share_of_batch(sums, ops.sum(ops.cast(counted, "int32"), axis=(1, 2)))

    def _weights(self, labels: Tensor, grades: Tensor, ranks: Tensor) -> Any:
        """(batch, documents, documents), or what broadcasts to it.

        Args:
            labels, grades: (batch, documents), in the order given and in the model's.
            ranks: (documents,), from 1 on.
        """
        if self.weighting is None:
            return 1.0
        discounts = ops.log(1.0 + ranks) / math.log(2)
        ideal = -ops.sort(-ops.relu(labels), axis=1)
        ideal = ops.where(ranks <= (self.k or math.inf), (2.0**ideal - 1.0) / discounts, 0.0)
        gains = (2.0 ** ops.relu(grades) - 1.0) / ops.maximum(ops.sum(ideal, axis=1, keepdims=True), 1e-10)
        if self.weighting == "ndcg1":
            return (gains / discounts)[:, :, None]
        by_gain = ops.abs(gains[:, :, None] - gains[:, None, :])
        swapped = ops.abs(1.0 / discounts[:, None] - 1.0 / discounts[None, :])
        if self.weighting == "lambdarank":
            return by_gain * swapped
        # Of two ranks that are d apart, the discounts of rank d and of the next.
        apart = ops.abs(ranks[:, None] - ranks[None, :])
        nearer, further = (ops.log(ops.maximum(1.0 + d, 2.0)) / math.log(2) for d in (apart, apart + 1.0))
        steps = ops.where(apart > 0, ops.abs(1.0 / nearer - 1.0 / further), 0.0)
        return by_gain * (steps if self.weighting == "ndcg2" else self.mu * steps + swapped)


@keras.saving.register_keras_serializable("bertzoo")
class RankNet(LambdaLoss):
    """The mean of -log₂ σ(sigma × (score - score of a less relevant document)) over pairs of a query's documents
    (Burges et al. 2005).

    Args:
        k, sigma: As for `LambdaLoss`.
    """

    arguments = ("k", "sigma")

    def __init__(self, k: int | None = None, sigma: float = 1.0, **kwargs: Any):
        super().__init__(None, k=k, sigma=sigma, **kwargs)
