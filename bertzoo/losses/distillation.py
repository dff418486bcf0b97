"""Losses that compare with what a teacher says: its scores, or its vectors."""

from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.losses.base import SentenceLoss, check_distance, teacher_margins, vector_distance
from bertzoo.types import Tensor


class ScoreDistillation(SentenceLoss):
    """The base of losses that compare scores of texts, (query, positive, negative, …), with a teacher's."""

    one_target = False
    columns = (3, None)

    def scores(self, y_pred: Tensor) -> Tensor:
        """How well each text fits the query: here dot products, (batch, columns, …) -> (batch, columns - 1)."""
        return ops.einsum("bd,bcd->bc", y_pred[:, 0], y_pred[:, 1:])


@keras.saving.register_keras_serializable("bertzoo")
class MarginMSE(ScoreDistillation):
    """(how much better the positive fits than each negative - what a teacher says of it)² (Hofstätter et al. 2020).

    Examples are (query, positive, negative, …). Targets are the teacher's margins (batch, negatives), or its scores of
    the positive and the negatives (batch, 1 + negatives). Fit is the dot product.

    Example:
        >>> vectors = np.array([[[1.0, 0.0], [2.0, 0.0], [0.5, 0.0]]])  # dot products 2 and 0.5
        >>> float(bz.losses.MarginMSE()(np.array([[1.0]]), vectors))
        0.25
    """

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        margins, fits = teacher_margins(y_true, y_pred.shape[1] - 2), self.scores(y_pred)
        return ops.mean(ops.square(fits[:, :1] - fits[:, 1:] - margins), axis=1)


@keras.saving.register_keras_serializable("bertzoo")
class KLDistillation(ScoreDistillation):
    """The Kullback-Leibler divergence of the student's distribution over a query's texts from the teacher's (Hinton et
    al. 2015; Lin et al. 2021).

    Examples are (query, positive, negative, …). Targets are the teacher's scores of the positive and the negatives
    (batch, 1 + negatives). The distributions are softmaxes of scores, the student's dot products, by a temperature.

    Args:
        temperature: What scores are divided by.
        teacher_temperature: What the teacher's are divided by; `temperature` where None.
    """

    arguments = ("temperature", "teacher_temperature")

    def __init__(self, temperature: float = 1.0, teacher_temperature: float | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.temperature, self.teacher_temperature = temperature, teacher_temperature
        if not (temperature > 0 and (teacher_temperature is None or teacher_temperature > 0)):
            raise ValueError(f"temperatures must be above 0. Received: {temperature!r} and {teacher_temperature!r}.")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        if len(y_true.shape) != 2 or y_true.shape[1] != y_pred.shape[1] - 1:
            raise ValueError(
                f"targets must be {y_pred.shape[1] - 1} scores for an example, of the positive and the negatives. "
                f"Received: shape {tuple(y_true.shape)}."
            )
        fits = self.scores(y_pred)
        students = ops.log_softmax(fits / self.temperature, axis=1)
        teachers = ops.log_softmax(y_true / (self.teacher_temperature or self.temperature), axis=1)
        return ops.sum(ops.exp(teachers) * (teachers - students), axis=1) * self.temperature**2


@keras.saving.register_keras_serializable("bertzoo")
class EmbeddingDistillation(SentenceLoss):
    """The distance of vectors to a teacher's (Reimers and Gurevych 2020, equation 1).

    Targets are the teacher's vectors, (batch, width), the same for all texts of an example, or (batch, columns, width).

    Args:
        distance: "mse", "euclidean" or "cosine" (1 - cosine).
        teacher_width: Width of the teacher's vectors if a dense layer, used in training only, projects the
            student's to it.
    """

    arguments = ("distance", "teacher_width")
    target = "vectors"
    targets_have_width = True
    columns = (1, None)

    def __init__(self, distance: str = "mse", teacher_width: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.distance, self.teacher_width = check_distance(distance, ("mse", "euclidean", "cosine")), teacher_width
        if teacher_width is not None:
            self.head = keras.layers.Dense(teacher_width, name="distillation", dtype="float32")

    def check_targets(self, targets: np.ndarray, width: int) -> None:
        width = self.teacher_width or width
        if targets.ndim not in (2, 3) or targets.shape[-1] != width:
            raise ValueError(
                f"y must hold the teacher's vectors, (examples, {width}) or (examples, texts, {width}). Received: "
                f"shape {targets.shape}. For vectors of another width pass EmbeddingDistillation(teacher_width=…)."
            )

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        students = y_pred if len(y_pred.shape) == 3 else y_pred[:, None]
        students = students if self.head is None else self.head(students)
        teachers = y_true if len(y_true.shape) == 3 else y_true[:, None]
        if self.distance == "mse":
            return ops.mean(ops.square(students - teachers), axis=(1, 2))
        return ops.mean(vector_distance(self.distance, students, teachers), axis=1)
