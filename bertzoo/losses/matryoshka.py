"""A loss over vectors cut to several widths."""

from collections.abc import Sequence
from typing import Any

import keras

from bertzoo.layers.heads import l2_normalize
from bertzoo.losses.base import SentenceLoss, WrappedLoss
from bertzoo.losses.names import get_sentence_loss
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class Matryoshka(WrappedLoss):
    """The sum of a loss over vectors cut to several widths, each scaled to length 1 (Kusupati et al. 2022, equation 1).

    Args:
        loss: The loss, without a head; a name as `SentenceEncoder.compile` takes it, or one of these losses.
        dimensions: The widths.
        weights: A factor for each width; 1 where None.

    Example:
        >>> loss = bz.losses.Matryoshka(bz.losses.MultipleNegativesRanking(), [256, 64])
        >>> encoder = bz.SentenceEncoder.from_preset("sentence_mini_en", verbose=False)
        >>> encoder.compile(bz.AdamW(1e-4), loss=loss)
    """

    arguments = ("loss", "dimensions", "weights")

    def __init__(
        self,
        loss: str | SentenceLoss = "multiple_negatives",
        dimensions: Sequence[int] = (),
        weights: Sequence[float] | None = None,
        **kwargs: Any,
    ):
        super().__init__(get_sentence_loss(loss), **kwargs)
        if self.loss.head is not None:
            raise ValueError(f"loss must have no dense layer of its own. Received: {type(self.loss).__name__}.")
        if not dimensions or any(dimension < 1 for dimension in dimensions):
            raise ValueError(f"dimensions must be positive widths, at least one. Received: {list(dimensions)}.")
        self.dimensions = tuple(dimensions)
        self.weights = (1.0,) * len(self.dimensions) if weights is None else tuple(weights)
        if len(self.weights) != len(self.dimensions):
            raise ValueError(
                f"weights must be as many as dimensions, {len(self.dimensions)}. Received: {len(self.weights)}."
            )

    def build_for_width(self, width: int, stddev: float) -> None:
        if max(self.dimensions) > width:
            raise ValueError(
                f"dimensions must be at most the vectors' width, {width}. Received: {list(self.dimensions)}."
            )
        super().build_for_width(width, stddev)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        total = 0.0
        for dimension, weight in zip(self.dimensions, self.weights):
            targets = y_true[..., :dimension] if self.targets_have_width else y_true
            total = total + weight * self.loss.call(targets, l2_normalize(y_pred[..., :dimension]))
        return total
