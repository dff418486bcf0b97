"""What the training models of several networks share: masked batches, and losses that are means over tokens."""

from typing import Any, ClassVar, TypeAlias

import keras
import numpy as np
from keras import ops

from bertzoo.text.masking import Masking
from bertzoo.training.metrics import LossMean
from bertzoo.training.optimizer import AdamW
from bertzoo.training.step import BackendModel
from bertzoo.types import Tensor

# Score -> its factor in the loss (None if it is no loss), its values, and their weights, two tensors of one shape.
Scores: TypeAlias = dict[str, tuple[float | None, Tensor, Tensor]]


class MaskedTraining(BackendModel):
    """The base of models that train on masked batches with a weighted sum of losses.

    A subclass has a `backbone`, the encoder to keep, and implements `call` and `_scores`.

    Args:
        masking: The masking.
        kwargs: Those of `keras.Model`.
    """

    # The names of the means that are reported; those of losses end in "_loss".
    score_names: ClassVar[tuple[str, ...]]
    # The arguments of the optimizer of the source.
    recipe: ClassVar[dict[str, Any]]

    def __init__(self, masking: Masking | None, **kwargs: Any):
        super().__init__(**kwargs)
        self.masking: Any = masking  # None only without a tokenizer, and then there is nothing to mask
        self.means = {name: keras.metrics.Mean(name=name) for name in self.score_names}

    def _scores(self, x: dict[str, Tensor], y_pred: dict[str, Tensor]) -> Scores:
        raise NotImplementedError

    def mask_batch(self, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict[str, np.ndarray]]:
        """Masks a batch.

        Args:
            inputs: The batch, int (batch, length) arrays as an encoder takes them.
            rng: The generator of the masks.

        Returns:
            A tuple of the inputs with `mask_positions`, `mask_labels` and `mask_weights`, (batch, predictions).
        """
        inputs, labels, weights = self.masking(inputs, rng)
        return ({**inputs, "mask_labels": labels, "mask_weights": weights},)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        losses, totals = [], []
        for name, (factor, values, weights) in self._scores(x, y_pred).items():
            total = ops.sum(weights)
            mean = ops.sum(values * weights) / ops.maximum(total, 1.0)
            self.means[name].update_state(ops.stop_gradient(mean), total)
            if factor is not None:
                losses.append(factor * mean)
                totals.append(total)
        LossMean.record_batch(self, losses, totals)
        return sum(losses[1:], losses[0])

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        return self.get_metrics_result()

    def compile(self, optimizer: keras.optimizers.Optimizer | None = None, **kwargs: Any) -> None:
        """As `keras.Model.compile`; the loss is the model's own, the default optimizer that of the source."""
        super().compile(optimizer=optimizer or AdamW(**self.recipe), **kwargs)
        LossMean.attach(self, num_terms=sum(name.endswith("_loss") for name in self.score_names))
        # TensorFlow traces the step twice if its first trace creates the moments.
        self.optimizer.build(self.trainable_variables)


def is_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """1 where no logit exceeds the label's: (…, classes), int (…) -> float32 (…)."""
    label_logits = ops.take_along_axis(logits, ops.cast(labels, "int32")[..., None], axis=-1)[..., 0]
    return ops.cast(label_logits >= ops.amax(logits, axis=-1), "float32")
