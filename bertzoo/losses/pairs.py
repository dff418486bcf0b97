"""Losses of pairs of texts with a score or a class, each pair by itself."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.layers.heads import cosine_similarity
from bertzoo.losses.base import SentenceLoss, check_distance, vector_distance
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class CosineRegression(SentenceLoss):
    """(cosine - score)² of a pair (Reimers and Gurevych 2019, section 3, regression objective).

    Example:
        >>> vectors = np.array([[[1.0, 0.0], [0.0, 1.0]]])
        >>> float(bz.losses.CosineRegression()(np.array([0.5]), vectors))
        0.25
    """

    def check_targets(self, targets: np.ndarray, width: int) -> None:
        if targets.size and not -1 <= targets.min() <= targets.max() <= 1:
            raise ValueError(
                "the cosine loss compares with cosines: scores must lie between -1 and 1. Received scores from "
                f"{targets.min():g} to {targets.max():g}: scale them (0 to 5: by 1 / 5), or take the loss 'cosent'."
            )

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return ops.square(cosine_similarity(y_pred[:, 0], y_pred[:, 1]) - ops.reshape(y_true, (-1,)))


@keras.saving.register_keras_serializable("bertzoo")
class SoftmaxOfPairs(SentenceLoss):
    """Cross-entropy of a class, from a dense layer over (u, v, |u - v|) (Reimers and Gurevych 2019, section 3).

    Args:
        num_labels: Number of classes.
    """

    arguments = ("num_labels",)
    target = "classes"
    head_inputs = 3

    def __init__(self, num_labels: int = 3, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_labels = num_labels
        self.head: keras.layers.Dense = keras.layers.Dense(num_labels, name="softmax_of_pairs", dtype="float32")

    def check_targets(self, targets: np.ndarray, width: int) -> None:
        if targets.size and not 0 <= targets.min() <= targets.max() < self.num_labels:
            raise ValueError(
                f"y must hold classes from 0 to {self.num_labels - 1}. Received: {targets.min()} to {targets.max()}. "
                "Number the classes from 0, or pass SoftmaxOfPairs(num_labels=…) with their number."
            )

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        u, v = y_pred[:, 0], y_pred[:, 1]
        logits = self.head(ops.concatenate([u, v, ops.abs(u - v)], axis=-1))
        classes = ops.cast(ops.reshape(y_true, (-1,)), "int32")
        return ops.sparse_categorical_crossentropy(classes, logits, from_logits=True)


@keras.saving.register_keras_serializable("bertzoo")
class Contrastive(SentenceLoss):
    """½ (y d² + (1 - y) max(0, margin - d)²) of a pair at distance d, with y 1 for pairs that belong together and else
    0 (Hadsell et al. 2006).

    Args:
        margin: How far apart other pairs must be.
        distance: "cosine" (1 - cosine), "euclidean" or "manhattan".

    Example:
        >>> vectors = np.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
        >>> float(bz.losses.Contrastive(margin=0.5)(np.array([1.0, 0.0]), vectors))
        0.0
    """

    arguments = ("margin", "distance")

    def __init__(self, margin: float = 0.5, distance: str = "cosine", **kwargs: Any):
        super().__init__(**kwargs)
        self.margin, self.distance = margin, check_distance(distance)

    def check_targets(self, targets: np.ndarray, width: int) -> None:
        if not np.isin(targets, (0, 1)).all():
            raise ValueError(
                f"y must be 1 for pairs that belong together and 0 for others. Received: {np.unique(targets)[:5]}. For "
                "scores between, use CosineRegression, CoSENT or AnglE."
            )

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        together = ops.reshape(ops.cast(y_true, y_pred.dtype), (-1,))
        distances = vector_distance(self.distance, y_pred[:, 0], y_pred[:, 1])
        apart = ops.square(ops.relu(self.margin - distances))
        return 0.5 * (together * ops.square(distances) + (1 - together) * apart)


@keras.saving.register_keras_serializable("bertzoo")
class OnlineContrastive(Contrastive):
    """Σ d² + Σ max(0, margin - d)² over the hard pairs of a batch: those that belong together and are further apart
    than the nearest of the others, and the others that are nearer than the furthest of these.

    One number for the batch, a sum; sample weights have no meaning in it. Arguments and targets are those of
    `Contrastive`.

    Args:
        margin, distance: Same as in `Contrastive`.
    """

    compares_examples = True

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        together = ops.reshape(ops.cast(y_true, "int32"), (-1,)) == 1
        distances = vector_distance(self.distance, y_pred[:, 0], y_pred[:, 1])
        hard_others = ~together & (distances < _extreme(distances, together, ops.max, -np.inf))
        hard_pairs = together & (distances > _extreme(distances, ~together, ops.min, np.inf))
        zeros = ops.zeros_like(distances)
        return ops.sum(ops.where(hard_pairs, ops.square(distances), zeros)) + ops.sum(
            ops.where(hard_others, ops.square(ops.relu(self.margin - distances)), zeros)
        )


def _extreme(distances: Tensor, chosen: Tensor, extreme: Callable, otherwise: float) -> Tensor:
    """The extreme of the chosen distances; where none is chosen, the mean of all others, as sentence-transformers."""
    count = ops.sum(ops.cast(chosen, "int32"))
    return ops.where(count > 0, extreme(ops.where(chosen, distances, otherwise)), ops.mean(distances))
