"""Losses of (anchor, positive, negative)."""

from typing import Any

import keras
from keras import ops

from bertzoo.losses.base import SentenceLoss, vector_distance
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class Triplet(SentenceLoss):
    """max(0, |anchor - positive| - |anchor - negative| + margin) (Reimers and Gurevych 2019, section 3).

    Args:
        margin: How much nearer the positive must be.
        distance: "euclidean" or "cosine" (1 - cosine).
    """

    arguments = ("margin", "distance")
    target = None
    columns = (3, 3)

    def __init__(self, margin: float = 5.0, distance: str = "euclidean", **kwargs: Any):
        super().__init__(**kwargs)
        if distance not in ("euclidean", "cosine"):
            raise ValueError(f'distance must be "euclidean" or "cosine". Received: {distance!r}.')
        self.margin, self.distance = margin, distance

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        anchor, positive, negative = (y_pred[:, i] for i in range(3))
        near, far = (vector_distance(self.distance, anchor, other) for other in (positive, negative))
        return ops.relu(near - far + self.margin)
