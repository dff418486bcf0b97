"""A loss of the vectors of every layer, so that an encoder may be cut after any of them."""

import math
from typing import Any

import keras
from keras import ops

from bertzoo.losses.base import SentenceLoss, WrappedLoss
from bertzoo.losses.names import get_sentence_loss
from bertzoo.types import Tensor

LAYER_WEIGHTS = {
    "uniform": lambda layer: 1.0,
    "log": lambda layer: 1.0 / (1.0 + math.log(1 + layer)),
    "linear": lambda layer: 1.0 / (1 + layer),
}


@keras.saving.register_keras_serializable("bertzoo")
class AdaptiveLayer(WrappedLoss):
    """A loss of the last layer's vectors, plus the mean of those of the layers before, the embeddings' output among
    them, plus their divergence from the last (Li et al. 2024). Of `Matryoshka`, it is 2D Matryoshka.

    All layers count in each step; their vectors cost no further forward pass. `evaluate` gives the loss of the last
    layer alone.

    Args:
        loss: The loss, a name as `SentenceEncoder.compile` takes it, or one of these losses.
        last_layer_weight: Factor on the last layer's loss.
        prior_layers_weight: Factor on the mean of the others'.
        kl_div_weight: Factor on the Kullback-Leibler divergence of the softmax over a layer's vectors from that of the
            last's, times the temperature.
        kl_temperature: What vectors are divided by before these softmaxes; 0 leaves the divergence out.
        layer_weighting: "uniform", "log", 1 / (1 + log(1 + number of the layer)), or "linear",
            1 / (1 + number of the layer).

    Raises:
        ValueError: `layer_weighting` is unknown, or the loss can't be wrapped.
    """

    arguments = (
        *("loss", "last_layer_weight", "prior_layers_weight"),
        *("kl_div_weight", "kl_temperature", "layer_weighting"),
    )
    reads_layers = outermost = True
    wraps_token_vectors = False

    def __init__(
        self,
        loss: str | SentenceLoss = "multiple_negatives",
        last_layer_weight: float = 1.0,
        prior_layers_weight: float = 1.0,
        kl_div_weight: float = 1.0,
        kl_temperature: float = 0.3,
        layer_weighting: str = "uniform",
        **kwargs: Any,
    ):
        super().__init__(get_sentence_loss(loss), **kwargs)
        if layer_weighting not in LAYER_WEIGHTS:
            raise ValueError(
                f"layer_weighting must be one of {', '.join(LAYER_WEIGHTS)}. Received: {layer_weighting!r}."
            )
        self.last_layer_weight, self.prior_layers_weight = last_layer_weight, prior_layers_weight
        self.kl_div_weight, self.kl_temperature = kl_div_weight, kl_temperature
        self.layer_weighting = layer_weighting

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        if len(y_pred.shape) < 4:  # the last layer's, (batch, columns, width)
            return self.last_layer_weight * self.loss.call(y_true, y_pred)
        *before, last = (y_pred[:, :, i] for i in range(y_pred.shape[2]))
        total = self.last_layer_weight * self.loss.call(y_true, last)
        for number, vectors in enumerate(before):
            weight = self.prior_layers_weight * LAYER_WEIGHTS[self.layer_weighting](number) / len(before)
            total = total + weight * self.loss.call(y_true, vectors)
            if self.kl_temperature > 0:
                total = total + self.kl_temperature * self.kl_div_weight * self._divergence(vectors, last)
        return total

    def _divergence(self, vectors: Tensor, last: Tensor) -> Tensor:
        """(batch, columns, width) twice -> (batch,)."""
        target = ops.stop_gradient(ops.log_softmax(last / self.kl_temperature, axis=-1))
        logs = ops.log_softmax(vectors / self.kl_temperature, axis=-1)
        return ops.mean(ops.sum(ops.exp(target) * (target - logs), axis=-1), axis=1)
