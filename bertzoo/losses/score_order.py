"""Losses that compare the order of pairs' similarities with that of their scores."""

from typing import Any

import keras
from keras import ops

from bertzoo.layers.heads import cosine_similarity, l2_normalize
from bertzoo.layers.slices import map_row_blocks
from bertzoo.losses.base import INFINITE, ROWS_AT_ONCE, SentenceLoss
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class CoSENT(SentenceLoss):
    """log(1 + Σ exp(scale × (cosine of a pair - cosine of a pair with a higher score))) (Huang et al. 2024).

    One number for the batch; sample weights have no meaning in it.

    Args:
        scale: Factor on the cosines.

    Example:
        >>> vectors = np.array([[[1.0, 0.0], [1.0, 0.1]], [[1.0, 0.0], [0.0, 1.0]]])  # two pairs
        >>> loss = bz.losses.CoSENT()
        >>> float(loss(np.array([1.0, 0.0]), vectors)) < float(loss(np.array([0.0, 1.0]), vectors))
        True
    """

    arguments = ("scale",)
    compares_examples = True

    def __init__(self, scale: float = 20.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.scale = scale

    def _similarity(self, u: Tensor, v: Tensor) -> Tensor:
        """What is compared: (batch, width) twice -> (batch,)."""
        return cosine_similarity(u, v)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        scores = ops.reshape(y_true, (-1,))
        similarities = self.scale * self._similarity(y_pred[:, 0], y_pred[:, 1])

        def rows(indices, similarities):
            own, own_scores = (ops.take(x, indices, axis=0)[:, None] for x in (similarities, scores))
            wrong_if_large = own_scores < scores[None, :]
            return ops.logsumexp(ops.where(wrong_if_large, own - similarities[None, :], -INFINITE), axis=1)

        terms = map_row_blocks(rows, ops.shape(scores)[0], ROWS_AT_ONCE, [similarities])
        return ops.logsumexp(ops.concatenate([terms, ops.zeros((1,), terms.dtype)]))


@keras.saving.register_keras_serializable("bertzoo")
class AnglE(CoSENT):
    """`CoSENT` of |cosine + sine| in place of the cosine, which is too flat near 1 and -1 to learn from (Li and Li
    2024).

    For the sine, the two halves of a vector are the real and the imaginary parts of complex numbers.

    Args:
        scale: Factor on the similarities.
    """

    def build_for_width(self, width: int, stddev: float) -> None:
        if width % 2:
            raise ValueError(f"AnglE takes vectors of an even width. Received: {width}.")

    def _similarity(self, u: Tensor, v: Tensor) -> Tensor:
        u, v = l2_normalize(u), l2_normalize(v)
        (a, b), (c, d) = (ops.split(x, 2, axis=-1) for x in (u, v))
        return ops.abs(ops.sum(u * v, axis=-1) + ops.sum(b * c - a * d, axis=-1))
