"""Losses of pairs of texts with a score or a class."""

from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.layers.heads import cosine_similarity
from bertzoo.losses.base import SentenceLoss
from bertzoo.types import Tensor

_INFINITE = 1e30


@keras.saving.register_keras_serializable("bertzoo")
class CosineRegression(SentenceLoss):
    """(cosine - score)² of a pair (Reimers and Gurevych 2019, section 3, regression objective)."""

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
class CoSENT(SentenceLoss):
    """log(1 + Σ exp(scale × (cosine of a pair - cosine of a pair with a higher score))) (Huang et al. 2024).

    One number for the batch; sample weights have no meaning in it.

    Args:
        scale: Factor on the cosines.
    """

    arguments = ("scale",)
    compares_examples = True

    def __init__(self, scale: float = 20.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        scores = ops.reshape(y_true, (-1,))
        cosines = self.scale * cosine_similarity(y_pred[:, 0], y_pred[:, 1])
        differences = cosines[:, None] - cosines[None, :]
        wrong_if_large = scores[:, None] < scores[None, :]
        terms = ops.reshape(ops.where(wrong_if_large, differences, -_INFINITE), (-1,))
        return ops.logsumexp(ops.concatenate([terms, ops.zeros((1,), terms.dtype)]))
