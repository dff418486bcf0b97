"""Compiling tasks: the loss is one weighted mean over all examples, whatever the batches."""

from typing import Any, ClassVar

import keras
from keras import ops

from bertzoo._keras_hooks import print_message
from bertzoo.data.training_batches import split_loss_divisor
from bertzoo.training.compiled_losses import (
    check_not_one_hot,
    join_metrics,
    resolve_logits_loss,
    resolve_logits_metrics,
)
from bertzoo.training.metrics import LossMean
from bertzoo.training.optimizer import AdamW
from bertzoo.training.step import BackendModel
from bertzoo.types import Tensor


class CompiledTask(BackendModel, keras.Model):
    """A model with a backbone, whose loss and optimizer have defaults."""

    # Whether the loss is one for each token, weighed by the sample weights.
    per_token: ClassVar[bool] = False
    needs_targets: ClassVar[bool] = True
    # Whether targets are the indices of classes, with which no one-hot loss or metric can compare.
    sparse_targets: bool = False

    def default_loss(self) -> Any:
        """The task's loss."""
        raise NotImplementedError

    def default_metrics(self) -> list | dict:
        """The task's metrics."""
        return []

    def compile(
        self,
        optimizer: Any = None,
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **kwargs,
    ) -> None:
        """As `keras.Model.compile`; omitted arguments follow the paper's recipe, and a printed line names them.

        AdamW with decay 0.01 on all but biases and LayerNorm, 10 % warm-up and linear decay over the steps of each
        `fit`, gradients clipped to a global norm of 1; peak rate by the model's width (Devlin et al. 2019, A.3; Turc et
        al. 2019).

        A mean loss is weighted by the sample weights: Σ weight · loss / Σ weight over the examples of an update,
        accumulated batches together, and in `evaluate` over all examples, whatever the batches. (In a stream, each
        batch has its own mean. A loss with `reduction="sum"` stays a sum over a batch.) Losses and metrics that are
        given by name take logits, the outputs of tasks. Where the loss is one for each token, metrics too weigh tokens,
        and ignore padding.

        With `jit_compile="auto"`, the default, a GPU spends little time on compiling. On PyTorch the kernels of a
        training step on a small batch are recorded at the second batch of its shape, and then run without Python
        between them, several times as fast. A custom loss or metric then runs in Python only for the first two batches
        of a shape; if it reads tensor values (`float(x)`), steps are not recorded. On JAX, short runs are compiled
        without the search for the fastest kernels.

        `jit_compile=True` pays in long runs. On PyTorch it makes the training step one graph: forward pass, loss,
        metrics and backward pass, with the same dropout masks and losses as without. On a GPU a step is then about
        twice as fast, once PyTorch has compiled for a minute or two, at the first step, at the first batch of another
        length and at the first of fewer rows. Predictions are compiled too. A loss or metric that cannot be compiled is
        an error. `jit_compile=False` compiles nothing.

        Raises:
            ValueError: A loss is unknown, or takes probabilities.
        """
        if optimizer is None:
            rate = self.backbone.config.default_learning_rate
            optimizer = AdamW(rate)
            print_message(
                f"compile: AdamW, peak rate {rate:g}, 10 % warm-up then linear decay, weight decay 0.01 except on "
                "biases and LayerNorm, clipped to norm 1"
            )
        if self.sparse_targets:
            check_not_one_hot(loss, [metrics, weighted_metrics])
        metrics = resolve_logits_metrics(metrics, self.default_metrics)
        weighted_metrics = resolve_logits_metrics(weighted_metrics, self.default_metrics)
        if metrics is None and not (self.per_token and weighted_metrics is not None):
            metrics = self.default_metrics()
        if self.per_token:
            metrics, weighted_metrics = None, join_metrics(metrics, weighted_metrics)
        super().compile(
            optimizer=optimizer,
            loss=resolve_logits_loss(self.default_loss() if loss is None else loss, self.default_loss),
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            **kwargs,
        )
        LossMean.attach(self, **self._loss_mean_options())

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a model that Keras loads; Keras leaves that to classes with a `compile` of their own."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def _loss_mean_options(self) -> dict[str, Any]:
        """Of the `LossMean` that keeps the log's loss."""
        return {}

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Tensor = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """The loss of a batch, which is also counted for the log."""
        self._check_targets(y)
        weights, divisor = split_loss_divisor(sample_weight)
        loss, weight = self.batch_loss(x, y, y_pred, weights, training), self._batch_weight(y_pred, weights)
        LossMean.record_batch(self, [loss], [weight])
        return loss if divisor is None else loss * (weight / divisor)

    def _check_targets(self, y) -> None:
        if y is None and self.needs_targets:
            raise ValueError("there are no targets: pass y; the batches of a stream must be (x, y).")

    def batch_loss(self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool) -> Tensor:
        """The mean loss over a batch's examples by their weights, a scalar."""
        return super().compute_loss(x, y, y_pred, sample_weight, training=training)

    def _batch_weight(self, y_pred: Tensor, sample_weight: Any) -> Tensor:
        """The sum of the weights that `batch_loss` is a mean over, a scalar; each weighs 1 where there are none."""
        if sample_weight is not None:
            return ops.sum(ops.cast(sample_weight, "float32"))
        # Counted on the device: PyTorch would wait for a number to be copied there.
        one_each = y_pred[..., 0] if self.per_token else y_pred[(slice(None), *[0] * (len(y_pred.shape) - 1))]
        return ops.sum(ops.ones_like(one_each, dtype="float32"))

    def compute_metrics(self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any = None) -> dict[str, Any]:
        self._check_targets(y)  # here too: Keras computes metrics first where it builds a model
        weights, _ = split_loss_divisor(sample_weight)
        if self.per_token:  # a sample each: Keras's metrics would divide the weights by the length of the rows
            per_row = keras.tree.map_structure(lambda output: len(output.shape) < 3, y_pred)  # a head for whole rows
            y, y_pred = (
                keras.tree.map_structure(lambda array, whole: array if whole else _flat(array), arrays, per_row)
                for arrays in (y, y_pred)
            )
            if weights is not None:
                weights = keras.tree.map_structure(lambda weight: ops.reshape(weight, (-1,)), weights)
        return super().compute_metrics(x, y, y_pred, weights)


def _flat(array):
    """(batch, tokens, …) -> (batch * tokens, …)."""
    return ops.reshape(array, (-1, *array.shape[2:]))
