"""Losses of (anchor, positive, negative): given, or found among the texts of a batch by their classes."""

from typing import Any

import keras
from keras import ops

from bertzoo.layers.heads import l2_normalize
from bertzoo.losses.base import INFINITE, SentenceLoss, check_distance, vector_distance
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class Triplet(SentenceLoss):
    """max(0, |anchor - positive| - |anchor - negative| + margin) (Reimers and Gurevych 2019, section 3).

    Args:
        margin: How much nearer the positive must be.
        distance: "euclidean", "manhattan" or "cosine" (1 - cosine).

    Example:
        >>> vectors = np.array([[[0.0, 0.0], [3.0, 4.0], [0.0, 6.0]]])  # anchor, positive at 5, negative at 6
        >>> float(bz.losses.Triplet(margin=2.0)(np.zeros(1), vectors))
        1.0
    """

    arguments = ("margin", "distance")
    target = None
    columns = (3, 3)

    def __init__(self, margin: float = 5.0, distance: str = "euclidean", **kwargs: Any):
        super().__init__(**kwargs)
        self.margin, self.distance = margin, check_distance(distance)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        anchor, positive, negative = (y_pred[:, i] for i in range(3))
        near, far = (vector_distance(self.distance, anchor, other) for other in (positive, negative))
        return ops.relu(near - far + self.margin)


class ClassTriplets(SentenceLoss):
    """The base of losses of single texts with classes: any two texts of a class in a batch are anchor and positive, and
    any text of another class is their negative (Hermans et al. 2017, section 2).

    Classes need several texts in a batch. Sample weights have no meaning in them, except in `BatchHardTriplet`.

    Args:
        margin: How much nearer the positive must be.
        distance: "euclidean" or "cosine" (1 - cosine).
    """

    arguments: tuple[str, ...] = ("margin", "distance")
    target = "classes"
    columns = (1, 1)
    compares_examples = True

    def __init__(self, margin: float = 5.0, distance: str = "euclidean", **kwargs: Any):
        super().__init__(**kwargs)
        self.margin, self.distance = margin, check_distance(distance, ("euclidean", "cosine"))

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        vectors = ops.reshape(y_pred, (-1, y_pred.shape[-1]))
        classes = ops.reshape(ops.cast(y_true, "int32"), (-1,))
        same = classes[:, None] == classes[None, :]
        others = ~ops.cast(ops.eye(ops.shape(classes)[0]), "bool")
        return self.mined_loss(self._distances(vectors), same & others, ~same)

    def mined_loss(self, distances: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """The loss: a number for the batch, or one for each text.

        Args:
            distances: (batch, batch).
            positives, negatives: bool (batch, batch): whether a text is of the same class as the anchor, which is the
                row, and not itself; and whether it is of another class.
        """
        raise NotImplementedError

    def _distances(self, vectors: Tensor) -> Tensor:
        if self.distance == "cosine":
            vectors = l2_normalize(vectors)
            return 1 - ops.matmul(vectors, ops.transpose(vectors))
        squares = ops.sum(ops.square(vectors), axis=1)
        squared = squares[:, None] + squares[None, :] - 2 * ops.matmul(vectors, ops.transpose(vectors))
        # The derivative of a root at 0 is infinite.
        return ops.where(squared > 0, ops.sqrt(ops.where(squared > 0, squared, 1.0)), 0.0)


@keras.saving.register_keras_serializable("bertzoo")
class BatchAllTriplet(ClassTriplets):
    """The mean of max(0, near - far + margin) over all triplets of a batch that are not 0. Its memory is the cube of
    the batch.

    Args:
        margin, distance: As for `ClassTriplets`.
    """

    def mined_loss(self, distances: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        losses = ops.relu(distances[:, :, None] - distances[:, None, :] + self.margin)
        losses = ops.where(positives[:, :, None] & negatives[:, None, :], losses, 0.0)
        return ops.sum(losses) / ops.maximum(ops.sum(ops.cast(losses > 1e-16, losses.dtype)), 1.0)


@keras.saving.register_keras_serializable("bertzoo")
class BatchHardTriplet(ClassTriplets):
    """max(0, furthest positive - nearest negative + margin) of each text.

    Args:
        margin, distance: As for `ClassTriplets`.
    """

    def mined_loss(self, distances: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        return ops.relu(self._hardest(distances, positives, negatives) + self.margin)

    def _hardest(self, distances: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Each text's furthest positive minus its nearest negative, (batch,); arguments as for `mined_loss`."""
        furthest = ops.max(ops.where(positives, distances, 0.0), axis=1)
        # What is no negative is pushed beyond all, so that a text without negatives gets some number.
        pushed = distances + ops.max(distances, axis=1, keepdims=True) * ops.cast(~negatives, distances.dtype)
        return furthest - ops.min(pushed, axis=1)


@keras.saving.register_keras_serializable("bertzoo")
class BatchHardSoftMarginTriplet(BatchHardTriplet):
    """log(1 + exp(furthest positive - nearest negative)) of each text, which needs no margin.

    Args:
        distance: As for `ClassTriplets`.
    """

    arguments = ("distance",)

    def __init__(self, distance: str = "euclidean", **kwargs: Any):
        super().__init__(distance=distance, **kwargs)

    def mined_loss(self, distances: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        return ops.softplus(self._hardest(distances, positives, negatives))


@keras.saving.register_keras_serializable("bertzoo")
class BatchSemiHardTriplet(ClassTriplets):
    """The mean over pairs of a class of max(0, distance - that of the semi-hard negative + margin): of the anchor's
    nearest negative that is further than the positive, else of its furthest (Schroff et al. 2015, section 3.2).

    Args:
        margin, distance: As for `ClassTriplets`.
    """

    def mined_loss(self, distances: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        beyond = negatives[:, None, :] & (distances[:, None, :] > distances[:, :, None])
        nearest_beyond = ops.min(ops.where(beyond, distances[:, None, :], INFINITE), axis=2)
        least = ops.min(distances, axis=1, keepdims=True)
        furthest = ops.max(ops.where(negatives, distances, least), axis=1, keepdims=True)
        negative = ops.where(nearest_beyond < INFINITE, nearest_beyond, furthest)
        losses = ops.where(positives, ops.relu(distances - negative + self.margin), 0.0)
        return ops.sum(losses) / ops.maximum(ops.sum(ops.cast(positives, losses.dtype)), 1.0)
