"""The bases of losses: of all, and of those of sentence encoders, which compare the vectors of an example's texts."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.layers.base import build_dense
from bertzoo.layers.heads import cosine_similarity
from bertzoo.types import Tensor

INFINITE = 1e30  # beyond every score and distance
ROWS_AT_ONCE = 1024  # examples that are compared with all others of the batch in one block


class ConfiguredLoss(keras.losses.Loss):
    """A loss whose configuration is the arguments of its constructor.

    Attributes:
        arguments: The constructor's own arguments, each kept as the attribute of the same name.
    """

    arguments: tuple[str, ...] = ()

    def get_config(self) -> dict[str, Any]:
        own = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in self.arguments}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**keras.saving.deserialize_keras_object(config))


class SentenceLoss(ConfiguredLoss):
    """The base of losses of sentence encoders.

    Attributes:
        target: What the loss compares with: "numbers", "classes", "vectors", or None where the order of the texts in
            the example is enough.
        one_target: Whether an example has a single target, where targets are numbers or classes.
        columns: The fewest and the most texts of an example.
        compares_examples: Whether examples are compared with each other, so that the loss of one depends on its batch.
        in_batch_negatives: Whether the texts of other examples are negatives.
        token_vectors: Whether a text has a vector for each of its tokens: `y_pred` is then (batch, columns, tokens,
            width), and a vector of zeros is that of a token that does not count.
        targets_have_width: Whether targets are vectors of the encoder's width, which `Matryoshka` cuts too.
        reads_layers: Whether, in training, it takes the vectors of all layers, (batch, columns, layers, width), the
            last of which is the encoder's output.
        outermost: Whether it gets more from the task than vectors and targets, as only the loss given to `compile`
            does, so that no other loss can wrap it.
        head: A layer that is trained with the encoder and discarded afterwards, or None.
        head_inputs: How many vectors of an example the head reads.
    """

    target: str | None = "numbers"
    one_target: bool = True
    columns: tuple[int, int | None] = (2, 2)
    compares_examples: bool = False
    in_batch_negatives: bool = False
    token_vectors: bool = False
    targets_have_width: bool = False
    reads_layers: bool = False
    outermost: bool = False
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
        """Refuses examples of too few or too many texts; `columns` has an entry for each text.

        Raises:
            ValueError: The number of columns is not this loss's.
        """
        fewest, most = self.columns
        if len(columns) < fewest or (most is not None and len(columns) > most):
            expected = f"{fewest}" if most == fewest else f"{fewest} or more"
            raise ValueError(f"{type(self).__name__} compares examples of {expected} texts. Received: {len(columns)}.")

    def check_target_shape(self, targets: np.ndarray) -> None:
        """Refuses several numbers or classes for an example of which the loss takes one.

        Args:
            targets: (examples,), or (examples, …).

        Raises:
            ValueError: They are of another shape.
        """
        if self.target in ("numbers", "classes") and self.one_target and targets.size != len(targets):
            raise ValueError(
                f"{type(self).__name__} takes one target for each example, (examples,). Received: shape "
                f"{targets.shape}."
            )

    def check_targets(self, targets: np.ndarray, width: int) -> None:
        """Refuses targets that the loss cannot compare with.

        Args:
            targets: (examples,), or (examples, …).
            width: Width of the encoder's vectors.

        Raises:
            ValueError: They are out of range or of another shape.
        """


INHERITED = (
    "target",
    "one_target",
    "columns",
    "compares_examples",
    "in_batch_negatives",
    "targets_have_width",
    "token_vectors",
    "head",
    "head_inputs",
)


class WrappedLoss(SentenceLoss):
    """The base of losses that are made of another one, whose targets and columns they have.

    Args:
        loss: The other loss.

    Attributes:
        wraps_token_vectors: Whether the other loss may be one of a vector for each token.

    Raises:
        ValueError: The other loss can't be wrapped.
    """

    wraps_token_vectors: bool = True

    def __init__(self, loss: SentenceLoss, **kwargs: Any):
        super().__init__(**kwargs)
        own, other = type(self).__name__, type(loss).__name__
        if loss.outermost:
            advice = "leave one of them out" if self.outermost else f"put {other} outside"
            raise ValueError(f"{own} can't wrap {other}: {advice}. Received: {own}({other}(…)).")
        if loss.token_vectors and not self.wraps_token_vectors:
            raise ValueError(f"{own} needs a loss of one vector a text. Received: {other}.")
        self.loss = loss
        for attribute in INHERITED:
            setattr(self, attribute, getattr(loss, attribute))

    def build_for_width(self, width: int, stddev: float) -> None:
        self.loss.build_for_width(width, stddev)

    def check_targets(self, targets: np.ndarray, width: int) -> None:
        self.loss.check_targets(targets, width)


def teacher_margins(y_true: Tensor, count: int) -> Tensor:
    """How much better a teacher holds a positive than each negative.

    Args:
        y_true: Its margins (batch, count), or (batch,) of a single negative; or its scores of the positive and the
            negatives (batch, 1 + count).
        count: The negatives of an example.

    Returns:
        (batch, count).

    Raises:
        ValueError: There are more or fewer.
    """
    # Not a reshape to (batch, -1): on TensorFlow, where the batch is of unknown size, so is then the width.
    y_true = y_true if len(y_true.shape) == 2 else ops.reshape(y_true, (-1, 1))
    if y_true.shape[1] == count + 1:
        y_true = y_true[:, :1] - y_true[:, 1:]
    if y_true.shape[1] != count:
        raise ValueError(
            f"targets must be {count} margins or {count + 1} scores for an example with {count} negatives. Received: "
            f"{y_true.shape[1]}."
        )
    return y_true


DISTANCES = ("euclidean", "manhattan", "cosine")


def check_distance(distance: str, known: Sequence[str] = DISTANCES) -> str:
    """The distance, where it is one of those known.

    Args:
        distance: Its name.
        known: The names.

    Raises:
        ValueError: It is none of them.
    """
    if distance not in known:
        raise ValueError(f"distance must be one of {', '.join(known)}. Received: {distance!r}.")
    return distance


def vector_distance(kind: str, u: Tensor, v: Tensor) -> Tensor:
    """How far vectors are from each other.

    Args:
        kind: One of `DISTANCES`; "cosine" is 1 - cosine.
        u, v: Vectors (…, width).

    Returns:
        (…).
    """
    if kind == "cosine":
        return 1 - cosine_similarity(u, v)
    if kind == "manhattan":
        return ops.sum(ops.abs(u - v), axis=-1)
    # The derivative of a root at 0 is infinite.
    return ops.sqrt(ops.maximum(ops.sum(ops.square(u - v), axis=-1), 1e-24))
