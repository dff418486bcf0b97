"""What keeps sparse vectors, (batch, columns, vocabulary), sparse in training."""

from typing import Any

import keras
from keras import ops

from bertzoo.losses.base import SentenceLoss, WrappedLoss
from bertzoo.losses.in_batch import SparseMultipleNegativesRanking
from bertzoo.losses.names import get_sentence_loss
from bertzoo.random import StepCounter
from bertzoo.types import Tensor


class RegularizerSchedule(keras.random.SeedGenerator):
    """The factor on the regularizers of `SpladeLoss`, which rises with the square of the step from 0 to 1.

    It is a SeedGenerator so that Keras carries its state through compiled steps without counting it as a weight, as the
    `step` of an encoder: int32 (2,), the training calls before this `fit`, and the steps until the factor is 1.

    Args:
        step: The counter of the model's training calls.
    """

    def __init__(self, step: StepCounter, name: str = "regularizer_schedule"):
        self.name, self.step = name, step
        self.state = keras.Variable(
            lambda shape, dtype: ops.zeros(shape, dtype), shape=(2,), dtype="int32", trainable=False, name=name
        )

    def set_steps(self, done: int, rising: int) -> None:
        """Sets the steps of a `fit`.

        Args:
            done: How many come before it.
            rising: How many the factor needs to rise.
        """
        self.state.assign([self.step.num_calls - done, rising])

    def factor(self) -> Tensor:
        """The factor in the current training call: 0 in the first. 1 where no steps are set."""
        first, rising = ops.unstack(ops.cast(ops.convert_to_tensor(self.state), "float32"))
        done = ops.cast(ops.convert_to_tensor(self.step.state)[0], "float32") - 1 - first
        return ops.where(rising > 0, ops.square(ops.clip(done / ops.maximum(rising, 1.0), 0.0, 1.0)), 1.0)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}


@keras.saving.register_keras_serializable("bertzoo")
class SpladeLoss(WrappedLoss):
    """A loss plus how many products a search takes, Σ over the vocabulary of (mean weight of the batch's vectors)²
    (Paria et al. 2020, equation 4; Formal et al. 2021, section 3.2).

    Args:
        loss: The loss, a name as `SentenceEncoder.compile` takes it, or one of these losses that compare dot products:
            `SparseMultipleNegativesRanking()` where None, `MarginMSE()`, `KLDistillation(temperature=2.0)`.
        document_regularizer_weight: Factor on that of documents, all texts of an example but the first.
        query_regularizer_weight: Factor on that of queries; None for none, as where queries are static.
        document_regularizer_threshold: Only documents with more words than this count (Shen et al. 2025, section 3.3).
        query_regularizer_threshold: Only queries with more words than this count.
        use_document_regularizer_only: Whether all texts are documents.
        warmup: The part of the steps of a `fit` in which the factors rise, with the square of the step, to their full
            size.

    Raises:
        ValueError: `warmup` is out of its range, or the loss can't be wrapped.

    Example:
        >>> encoder = bz.SparseEncoder.from_preset("bert_mini_en", verbose=False)
        >>> encoder.compile(bz.AdamW(1e-4), loss=bz.losses.SpladeLoss(document_regularizer_weight=3e-5))
    """

    arguments = (
        "loss",
        "document_regularizer_weight",
        "query_regularizer_weight",
        "document_regularizer_threshold",
        "query_regularizer_threshold",
        "use_document_regularizer_only",
        "warmup",
    )
    outermost = True  # the task sets its schedule

    def __init__(
        self,
        loss: str | SentenceLoss | None = None,
        document_regularizer_weight: float = 3e-5,
        query_regularizer_weight: float | None = 5e-5,
        document_regularizer_threshold: int | None = None,
        query_regularizer_threshold: int | None = None,
        use_document_regularizer_only: bool = False,
        warmup: float = 1 / 3,
        **kwargs: Any,
    ):
        super().__init__(SparseMultipleNegativesRanking() if loss is None else get_sentence_loss(loss), **kwargs)
        if not 0 <= warmup <= 1:
            raise ValueError(f"warmup must be from 0 to 1, a part of the steps. Received: {warmup!r}.")
        self.document_regularizer_weight = document_regularizer_weight
        self.query_regularizer_weight = query_regularizer_weight
        self.document_regularizer_threshold = document_regularizer_threshold
        self.query_regularizer_threshold = query_regularizer_threshold
        self.use_document_regularizer_only, self.warmup = use_document_regularizer_only, warmup
        self.compares_examples = True
        self.schedule: RegularizerSchedule | None = None  # of the task that is compiled with this loss

    def set_total_steps(self, total: int, done: int = 0) -> None:
        """Sets how long the factors on the regularizers rise.

        Args:
            total: The steps of a `fit`.
            done: How many of them are done.
        """
        if self.schedule is not None:
            self.schedule.set_steps(done, int(total * self.warmup))

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        queries = 0 if self.use_document_regularizer_only else 1
        threshold = self.document_regularizer_threshold
        terms = self.document_regularizer_weight * flops_regularizer(y_pred[:, queries:], threshold)
        if queries and self.query_regularizer_weight is not None:
            threshold = self.query_regularizer_threshold
            terms = terms + self.query_regularizer_weight * flops_regularizer(y_pred[:, :1], threshold)
        return self.loss.call(y_true, y_pred) + (terms if self.schedule is None else self.schedule.factor() * terms)


def flops_regularizer(vectors: Tensor, threshold: int | None = None) -> Tensor:
    """Σ over the vocabulary of (mean weight of the vectors)², a scalar.

    Args:
        vectors: (batch, columns, vocabulary).
        threshold: Vectors with at most so many words count as 0.
    """
    if threshold is not None:
        words = ops.sum(ops.cast(vectors != 0, "float32"), axis=-1, keepdims=True)
        vectors = vectors * ops.cast(words > threshold, vectors.dtype)
    return ops.sum(ops.square(ops.mean(vectors, axis=(0, 1))))
