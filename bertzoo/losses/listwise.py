"""Losses of rerankers that compare distributions over a query's documents."""

from typing import Any

import keras
from keras import ops

from bertzoo.losses.ranking import FAR_BELOW, RankingLoss
from bertzoo.types import Tensor

ACTIVATIONS = {"linear": lambda x: x, "sigmoid": ops.sigmoid, "tanh": ops.tanh}


@keras.saving.register_keras_serializable("bertzoo")
class ListNet(RankingLoss):
    """Cross-entropy of the softmax over scores with the softmax over labels (Cao et al. 2007).

    Example:
        >>> loss = bz.losses.ListNet()
        >>> labels = np.array([[1.0, 0.0]])
        >>> float(loss(labels, np.array([[1.0, 0.0]]))) < float(loss(labels, np.array([[0.0, 1.0]])))
        True
    """

    def list_losses(self, labels: Tensor, scores: Tensor, present: Tensor) -> Tensor:
        targets = ops.softmax(ops.where(present, labels, FAR_BELOW), axis=1)
        return -ops.sum(ops.where(present, targets * ops.log_softmax(scores, axis=1), 0.0), axis=1)


@keras.saving.register_keras_serializable("bertzoo")
class ListMLE(RankingLoss):
    """-log of the probability of the right order, if documents are drawn one after another by their softmax (Xia et al.
    2008).

    Args:
        respect_input_order: Whether the right order is that in which documents are given, else that of their labels,
            the greatest first.
    """

    arguments = ("respect_input_order",)

    def __init__(self, respect_input_order: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.respect_input_order = respect_input_order

    def list_losses(self, labels: Tensor, scores: Tensor, present: Tensor) -> Tensor:
        if not self.respect_input_order:
            order = ops.argsort(ops.where(present, -labels, -FAR_BELOW), axis=1)
            scores = ops.take_along_axis(scores, order, axis=1)
            present = ops.take_along_axis(present, order, axis=1)
        ranks = ops.arange(ops.shape(scores)[1], dtype="int32")
        left = ranks[None, :] >= ranks[:, None]  # the documents that are not drawn before
        rest = ops.logsumexp(ops.where(left[None], scores[:, None, :], FAR_BELOW), axis=2)
        weights = self.rank_weights(present)
        return -ops.sum(ops.where(present, (scores - rest) * weights, 0.0), axis=1)

    def rank_weights(self, present: Tensor) -> Any:
        """How much each rank counts, (batch, documents) or a number; `present` is bool (batch, documents)."""
        return 1.0


@keras.saving.register_keras_serializable("bertzoo")
class PListMLE(ListMLE):
    """`ListMLE` that weighs rank r of n by 2^(n - r) - 1, divided by the sum of these: the first ranks matter most (Lan
    et al. 2014).

    Args:
        respect_input_order: As for `ListMLE`.
    """

    def rank_weights(self, present: Tensor) -> Tensor:
        real = ops.cast(present, "float32")
        count = ops.sum(real, axis=1, keepdims=True)
        ranks = ops.arange(1, ops.shape(real)[1] + 1, dtype="float32")[None]
        scale = ops.relu(count - 127.0)  # 2^128 is infinite in float32
        weights = (2.0 ** (count - ranks - scale) - 2.0**-scale) * real
        return weights / (ops.sum(weights, axis=1, keepdims=True) + 1e-10)


@keras.saving.register_keras_serializable("bertzoo")
class ListwiseCrossentropy(RankingLoss):
    """Cross-entropy of finding a query's first document, the right one, among its documents and those of other queries;
    the counterpart of `MultipleNegativesRanking`.

    Other queries' documents are drawn by the seed when `fit` begins, the same for all epochs; a document of the same
    query is not among them.

    Args:
        num_negatives: How many documents of other queries each query gets.
        scale: Factor on what the activation gives, before the softmax.
        activation: "sigmoid", "tanh" or "linear", of the scores.

    Raises:
        ValueError: The activation is unknown.
    """

    arguments = ("num_negatives", "scale", "activation")
    target = None

    def __init__(self, num_negatives: int = 4, scale: float = 10.0, activation: str = "sigmoid", **kwargs: Any):
        super().__init__(**kwargs)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}. Received: {activation!r}.")
        if num_negatives < 0:
            raise ValueError(f"num_negatives must be 0 or more. Received: {num_negatives!r}.")
        self.num_negatives, self.scale, self.activation = num_negatives, scale, activation

    def list_losses(self, labels: Tensor, scores: Tensor, present: Tensor) -> Tensor:
        logits = ops.where(present, self.scale * ACTIVATIONS[self.activation](scores), FAR_BELOW)
        return -ops.log_softmax(logits, axis=1)[:, 0]
