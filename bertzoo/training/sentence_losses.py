"""Losses of sentence encoders: of tuples of vectors, and of what is known about their texts.

All take `y_pred`, float (batch, columns, width), the vectors of each example's texts, as `SentenceEncoder` returns them
in training. Numbers and defaults are those of sentence-transformers.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.layers.base import build_dense
from bertzoo.layers.heads import cosine_similarity, l2_normalize
from bertzoo.types import Tensor

_INFINITE = 1e30


class SentenceLoss(keras.losses.Loss):
    """The base of these losses.

    Attributes:
        arguments: The constructor's own arguments, each kept as the attribute of the same name.
        target: What the loss compares with: "numbers", "classes", "vectors", or None where the order of the texts in
            the example is enough.
        columns: The fewest and the most texts of an example.
        compares_examples: Whether examples are compared with each other, so that the loss of one depends on its batch.
        in_batch_negatives: Whether the texts of other examples are negatives.
        head: A layer that is trained with the encoder and discarded afterwards, or None.
        head_inputs: How many vectors of an example the head reads.
    """

    arguments: tuple[str, ...] = ()
    target: str | None = "numbers"
    columns: tuple[int, int | None] = (2, 2)
    compares_examples: bool = False
    in_batch_negatives: bool = False
    head: keras.layers.Dense | None = None
    head_inputs: int = 1

    def build_for_width(self, width: int, stddev: float) -> None:
        """Makes the loss's own weights, if it has any, for vectors of this width.

        Args:
            width: Width of the encoder's vectors.
            stddev: Standard deviation of the initial weights.
        """
        if self.head is not None and not self.head.built:
            build_dense(self.head, self.head, self.head_inputs * width, stddev)

    def check_columns(self, columns: Sequence) -> None:
        """Refuses examples of too few or too many texts.

        Raises:
            ValueError: The number of columns is not this loss's.
        """
        fewest, most = self.columns
        if len(columns) < fewest or (most is not None and len(columns) > most):
            expected = f"{fewest}" if most == fewest else f"{fewest} or more"
            raise ValueError(f"{type(self).__name__} compares examples of {expected} texts. Received: {len(columns)}.")

    def check_targets(self, targets: np.ndarray, width: int) -> None:
        """Refuses targets that the loss cannot compare with, for vectors of this width.

        Raises:
            ValueError: They are out of range or of another shape.
        """

    def get_config(self) -> dict[str, Any]:
        own = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in self.arguments}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SentenceLoss":
        return cls(**keras.saving.deserialize_keras_object(config))


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
        near, far = (_distance(self.distance, anchor, other) for other in (positive, negative))
        return ops.relu(near - far + self.margin)


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


@keras.saving.register_keras_serializable("bertzoo")
class MarginMSE(SentenceLoss):
    """(how much better the positive fits than each negative - what a teacher says of it)² (Hofstätter et al. 2020).

    Examples are (query, positive, negative, …). Targets are the teacher's margins (batch, negatives), or its scores of
    the positive and the negatives (batch, 1 + negatives). Fit is the dot product.
    """

    columns = (3, None)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        negatives = y_pred.shape[1] - 2
        # Not a reshape to (batch, -1): on TensorFlow, where the batch is of unknown size, so is then the width.
        y_true = y_true if len(y_true.shape) == 2 else ops.reshape(y_true, (-1, 1))
        if y_true.shape[1] == negatives + 1:
            y_true = y_true[:, :1] - y_true[:, 1:]
        if y_true.shape[1] != negatives:
            raise ValueError(
                f"targets must be {negatives} margins or {negatives + 1} scores for an example with {negatives} "
                f"negatives. Received: {y_true.shape[1]}."
            )
        fits = ops.einsum("bd,bcd->bc", y_pred[:, 0], y_pred[:, 1:])
        return ops.mean(ops.square(fits[:, :1] - fits[:, 1:] - y_true), axis=1)


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
    columns = (1, None)

    def __init__(self, distance: str = "mse", teacher_width: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if distance not in ("mse", "euclidean", "cosine"):
            raise ValueError(f'distance must be "mse", "euclidean" or "cosine". Received: {distance!r}.')
        self.distance, self.teacher_width = distance, teacher_width
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
        return ops.mean(_distance(self.distance, students, teachers), axis=1)


@keras.saving.register_keras_serializable("bertzoo")
class Matryoshka(SentenceLoss):
    """The sum of a loss over vectors cut to several widths, each scaled to length 1 (Kusupati et al. 2022, equation 1).

    Args:
        loss: The loss, without a head; a name as `SentenceEncoder.compile` takes it, or one of these losses.
        dimensions: The widths.
        weights: A factor for each width; 1 where None.
    """

    arguments = ("loss", "dimensions", "weights")

    def __init__(
        self,
        loss: str | SentenceLoss = "multiple_negatives",
        dimensions: Sequence[int] = (),
        weights: Sequence[float] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.loss = get_sentence_loss(loss)
        if self.loss.head is not None:
            raise ValueError(f"{type(self.loss).__name__} has a dense layer for one width and can't be cut to several.")
        if not dimensions or any(dimension < 1 for dimension in dimensions):
            raise ValueError(f"dimensions must be positive widths, at least one. Received: {list(dimensions)}.")
        self.dimensions = tuple(dimensions)
        self.weights = (1.0,) * len(self.dimensions) if weights is None else tuple(weights)
        if len(self.weights) != len(self.dimensions):
            raise ValueError(f"there are {len(self.dimensions)} dimensions and {len(self.weights)} weights.")
        for attribute in ("target", "columns", "compares_examples", "in_batch_negatives"):
            setattr(self, attribute, getattr(self.loss, attribute))

    def build_for_width(self, width: int, stddev: float) -> None:
        if max(self.dimensions) > width:
            raise ValueError(f"the vectors are {width} wide; dimensions are {list(self.dimensions)}.")

    def check_targets(self, targets: np.ndarray, width: int) -> None:
        self.loss.check_targets(targets, width)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        total = 0.0
        for dimension, weight in zip(self.dimensions, self.weights):
            targets = y_true[..., :dimension] if self.target == "vectors" else y_true
            total = total + weight * self.loss.call(targets, l2_normalize(y_pred[..., :dimension]))
        return total


LOSSES = {
    "cosine": CosineRegression,
    "cosent": CoSENT,
    "softmax": SoftmaxOfPairs,
    "triplet": Triplet,
    "multiple_negatives": MultipleNegativesRanking,
    "margin_mse": MarginMSE,
    "distillation": EmbeddingDistillation,
}


def get_sentence_loss(loss: str | SentenceLoss) -> SentenceLoss:
    """Finds a loss by name, with its defaults; returns a loss unchanged.

    Raises:
        ValueError: The name is unknown.
    """
    if isinstance(loss, SentenceLoss):
        return loss
    if loss not in LOSSES:
        raise ValueError(
            f"loss must be one of {', '.join(LOSSES)}, or one of bertzoo's sentence losses. Received: {loss!r}."
        )
    return LOSSES[loss]()


def _distance(kind: str, u: Tensor, v: Tensor) -> Tensor:
    """(…, width) twice -> (…): the "euclidean" distance, or for "cosine" 1 - cosine."""
    if kind == "cosine":
        return 1 - cosine_similarity(u, v)
    # The derivative of a root at 0 is infinite.
    return ops.sqrt(ops.maximum(ops.sum(ops.square(u - v), axis=-1), 1e-24))
