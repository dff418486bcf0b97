"""The loss of entities of any label: a focal loss of each span and label, or of each word and label."""

from typing import Any

import keras
from keras import ops

from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class EntityLoss(keras.losses.Loss):
    """The binary focal loss of all elements of a text's logits, summed; the mean over the texts of a batch by their
    weights (Lin et al. 2017; Zaratiana et al. 2024, section 2.3).

    An element's loss is -α (1 - p)^γ log p, p being the probability that it gives to its target. By default it is the
    cross-entropy. Elements whose target is below 0 do not count.

    Args:
        alpha: The weight of targets of 1, those of 0 having 1 - alpha; None for 1 each.
        gamma: By how much elements that are right already count less; 0 for not at all.
        name: The loss's name.

    Raises:
        ValueError: `alpha` is not between 0 and 1, or `gamma` is below 0.
    """

    def __init__(self, alpha: float | None = None, gamma: float = 0.0, name: str = "entity_loss", **kwargs: Any):
        super().__init__(name=name, **{"reduction": "mean_with_sample_weight", **kwargs})
        if gamma < 0 or (alpha is not None and not 0 <= alpha <= 1):
            raise ValueError(f"gamma must be at least 0, and alpha from 0 to 1. Received: {gamma!r} and {alpha!r}.")
        self.alpha, self.gamma = alpha, gamma

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """
        Args:
            y_true: (batch, …): 1, 0, or below 0.
            y_pred: Logits (batch, …).
        """
        is_one = y_true > 0.5
        margins = ops.where(is_one, y_pred, -y_pred)
        losses = ops.softplus(-margins)
        if self.gamma:
            losses = losses * ops.power(ops.sigmoid(-margins), self.gamma)
        if self.alpha is not None:
            losses = losses * ops.where(is_one, self.alpha, 1 - self.alpha)
        losses = ops.where(y_true < 0, 0.0, losses)
        return ops.sum(losses, axis=tuple(range(1, len(losses.shape))))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "alpha": self.alpha, "gamma": self.gamma}
