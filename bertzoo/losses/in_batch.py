"""Losses whose negatives are the texts of the other examples of the batch.

Each is computed for a block of examples at a time, against all: the scores of a batch of 16,384 would be a gigabyte.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.layers.heads import l2_normalize
from bertzoo.layers.slices import map_row_blocks
from bertzoo.losses.base import INFINITE, ROWS_AT_ONCE, SentenceLoss
from bertzoo.types import Tensor

DIRECTIONS = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
HARDNESS_MODES = ("in_batch_negatives", "hard_negatives", "all_negatives")


class InBatchLoss(SentenceLoss):
    """The base of these losses.

    Examples are (anchor, positive) or (anchor, positive, negative, …). Larger batches give more negatives; if memory is
    short, set `mini_batch_size` in `compile`. A text that occurs twice in a batch would be a negative of itself: `fit`
    keeps equal texts out of a batch, as long as others are left.
    """

    target: str | None = None
    columns: tuple[int, int | None] = (2, None)
    compares_examples = in_batch_negatives = True

    def prepare_vectors(self, y_pred: Tensor) -> Tensor:
        """The vectors whose dot products are compared: here of length 1, so that these are cosines."""
        return l2_normalize(y_pred)

    def block_losses(self, rows: Tensor, y_true: Tensor, vectors: Tensor) -> Tensor:
        """The losses of some examples.

        Args:
            rows: int32 (block,), their indices.
            y_true: The targets of all examples.
            vectors: float (batch, columns, width), of `prepare_vectors`, of all examples.

        Returns:
            (block,).
        """
        raise NotImplementedError

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        vectors = self.prepare_vectors(y_pred)
        return map_row_blocks(
            lambda rows, vectors: self.block_losses(rows, y_true, vectors),
            ops.shape(vectors)[0],
            ROWS_AT_ONCE,
            [vectors],
        )


def _scores(u: Tensor, v: Tensor) -> Tensor:
    """Dot products of all pairs: (n, width), (m, width) -> (n, m)."""
    return ops.matmul(u, ops.transpose(v))


def _documents(vectors: Tensor) -> Tensor:
    """All positives, then all first negatives, and so on: (batch * (columns - 1), width)."""
    return ops.reshape(ops.swapaxes(vectors[:, 1:], 0, 1), (-1, vectors.shape[2]))


def _is_own(rows: Tensor, vectors: Tensor, columns: int = 1) -> Tensor:
    """bool (block, batch * columns): whether the text of a column is of the same example."""
    own = rows[:, None] == ops.arange(ops.shape(vectors)[0], dtype="int32")[None, :]
    return ops.tile(own, (1, columns)) if columns > 1 else own


@keras.saving.register_keras_serializable("bertzoo")
class MultipleNegativesRanking(InBatchLoss):
    """Cross-entropy of finding an anchor's positive among the texts of all examples (Henderson et al. 2017, section 4;
    van den Oord et al. 2018, section 2.3).

    Args:
        scale: Factor on the cosines before the softmax.
        directions: Which cosines compete with that of anchor and positive: "query_to_doc", those of the anchor and all
            positives and negatives, which is always one of them; "query_to_query", of the anchor and other anchors;
            "doc_to_query", of the positive and other anchors; "doc_to_doc", of the positive and other examples'
            positives and negatives. All four with "joint" are GTE's loss (Li et al. 2023).
        partition_mode: "joint", one softmax over all of these, or "per_direction", the mean of one for each direction
            (the symmetric loss: "query_to_doc" and "doc_to_query").
        hardness_mode: Which negatives "query_to_doc" makes harder, by adding `hardness_strength` times their cosine to
            their logits: "in_batch_negatives", "hard_negatives" (the example's own), "all_negatives"; None for none.
        hardness_strength: Factor on the cosines that `hardness_mode` adds to the logits.

    Raises:
        ValueError: An argument is unknown or out of its range.

    Example:
        >>> encoder = bz.SentenceEncoder.from_preset("sentence_mini_en", verbose=False)
        >>> encoder.compile(bz.AdamW(1e-4), loss=bz.losses.MultipleNegativesRanking(scale=20))
        >>> history = encoder.fit((["cats", "cities"], ["Cats sleep.", "Paris is a city."]), verbose=0)
    """

    arguments = ("scale", "directions", "partition_mode", "hardness_mode", "hardness_strength")

    def __init__(
        self,
        scale: float = 20.0,
        directions: Sequence[str] = ("query_to_doc",),
        partition_mode: str = "joint",
        hardness_mode: str | None = None,
        hardness_strength: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if "query_to_doc" not in directions or not set(directions) <= set(DIRECTIONS):
            raise ValueError(
                f"directions must be query_to_doc and any of {', '.join(DIRECTIONS[1:])}. Received: {directions!r}."
            )
        if partition_mode not in ("joint", "per_direction"):
            raise ValueError(f'partition_mode must be "joint" or "per_direction". Received: {partition_mode!r}.')
        if partition_mode == "per_direction" and {"query_to_query", "doc_to_doc"} & set(directions):
            raise ValueError(
                'query_to_query and doc_to_doc have no positive to find, so they need partition_mode="joint". '
                f"Received: {directions!r} with partition_mode={partition_mode!r}."
            )
        if hardness_mode not in (None, *HARDNESS_MODES) or hardness_strength < 0:
            raise ValueError(
                f"hardness_mode must be None or one of {', '.join(HARDNESS_MODES)}, and hardness_strength at least 0. "
                f"Received: {hardness_mode!r} and {hardness_strength!r}."
            )
        self.scale, self.directions, self.partition_mode = scale, tuple(directions), partition_mode
        self.hardness_mode, self.hardness_strength = hardness_mode, hardness_strength

    def block_losses(self, rows: Tensor, y_true: Tensor, vectors: Tensor) -> Tensor:
        anchors, columns = vectors[:, 0], vectors.shape[1] - 1
        own = ops.take(vectors, rows, axis=0)
        documents, own_anchors, own_positives = _documents(vectors), own[:, 0], own[:, 1]
        logits = []
        for direction in self.directions:
            if direction == "query_to_doc":
                cosines = _scores(own_anchors, documents)
                logits.append(self.scale * cosines + self._penalties(rows, cosines, vectors))
            elif direction == "query_to_query":
                cosines = self.scale * _scores(own_anchors, anchors)
                logits.append(ops.where(_is_own(rows, vectors), -INFINITE, cosines))
            elif direction == "doc_to_query":
                logits.append(self.scale * _scores(own_positives, anchors))
            else:
                cosines = self.scale * _scores(own_positives, documents)
                logits.append(ops.where(_is_own(rows, vectors, columns), -INFINITE, cosines))
        of_positives = self.scale * ops.sum(own_anchors * own_positives, axis=-1)
        if self.partition_mode == "joint":
            return ops.logsumexp(ops.concatenate(logits, axis=1), axis=1) - of_positives
        return sum(ops.logsumexp(x, axis=1) for x in logits) / len(logits) - of_positives

    def _penalties(self, rows: Tensor, cosines: Tensor, vectors: Tensor) -> Any:
        """What makes negatives harder, added to the logits."""
        if self.hardness_mode is None or not self.hardness_strength:
            return 0.0
        own = _is_own(rows, vectors, vectors.shape[1] - 1)
        are_positives = ops.arange(ops.shape(own)[1]) < ops.shape(vectors)[0]
        chosen = {
            "in_batch_negatives": ~own,
            "hard_negatives": own & ~are_positives,
            "all_negatives": ~(own & are_positives),
        }[self.hardness_mode]
        return ops.where(chosen, self.hardness_strength * ops.stop_gradient(cosines), 0.0)


@keras.saving.register_keras_serializable("bertzoo")
class SparseMultipleNegativesRanking(MultipleNegativesRanking):
    """`MultipleNegativesRanking` of dot products.

    Args:
        scale: Factor on the dot products before the softmax.
        options: The other arguments of `MultipleNegativesRanking`, where "cosine" is the dot product.
    """

    def __init__(self, scale: float = 1.0, **options: Any):
        super().__init__(scale, **options)

    def prepare_vectors(self, y_pred: Tensor) -> Tensor:
        return y_pred


@keras.saving.register_keras_serializable("bertzoo")
class GIST(InBatchLoss):
    """`MultipleNegativesRanking` without the negatives that another model, the guide, holds nearer to the anchor than
    its positive, since they are probably positives too (Solatorio 2024).

    Targets are the guide's vectors of the same texts, (batch, columns, width of the guide):
    `y = np.stack([guide.encode(column) for column in x], axis=1)`. The guide reads each text once, not in each epoch.

    Args:
        temperature: What cosines are divided by before the softmax.
        margin_strategy: Negatives are left out above this guide cosine: "absolute", the positive's minus `margin`;
            "relative", the positive's minus that fraction of it.
        margin: The margin of `margin_strategy`.
        contrast_anchors: Whether other anchors are negatives too.
        contrast_positives: Whether other positives compete with the positive too.

    Raises:
        ValueError: `margin_strategy` is unknown.
    """

    arguments = ("temperature", "margin_strategy", "margin", "contrast_anchors", "contrast_positives")
    target = "vectors"

    def __init__(
        self,
        temperature: float = 0.01,
        margin_strategy: str = "absolute",
        margin: float = 0.0,
        contrast_anchors: bool = True,
        contrast_positives: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if margin_strategy not in ("absolute", "relative"):
            raise ValueError(f'margin_strategy must be "absolute" or "relative". Received: {margin_strategy!r}.')
        self.temperature, self.margin_strategy, self.margin = temperature, margin_strategy, margin
        self.contrast_anchors, self.contrast_positives = contrast_anchors, contrast_positives

    def check_targets(self, targets: np.ndarray, width: int) -> None:
        if targets.ndim != 3:
            raise ValueError(
                "y must hold the guide's vectors, (examples, texts, width of the guide). Received: shape "
                f"{targets.shape}. Pass np.stack([guide.encode(column) for column in x], axis=1)."
            )

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        if y_true.shape[1] != y_pred.shape[1]:
            raise ValueError(
                f"targets must be the guide's vectors of {y_pred.shape[1]} texts. Received: {y_true.shape[1]}. Pass "
                "np.stack([guide.encode(column) for column in x], axis=1)."
            )
        return super().call(y_true, y_pred)

    def block_losses(self, rows: Tensor, y_true: Tensor, vectors: Tensor) -> Tensor:
        guides = l2_normalize(y_true)
        own, own_guides = ops.take(vectors, rows, axis=0), ops.take(guides, rows, axis=0)
        pairs = [(0, 1), *([(0, 0)] if self.contrast_anchors else []), *([(1, 1)] if self.contrast_positives else [])]
        pairs += [(0, column) for column in range(2, vectors.shape[1])]
        of_positives = ops.sum(own_guides[:, 0] * own_guides[:, 1], axis=-1, keepdims=True)
        margin = self.margin if self.margin_strategy == "absolute" else self.margin * ops.abs(of_positives)
        logits = []
        for first, second in pairs:
            left_out = _scores(own_guides[:, first], guides[:, second]) > of_positives - margin
            if (first, second) == (0, 1):
                left_out = left_out & ~_is_own(rows, vectors)
            cosines = _scores(own[:, first], vectors[:, second]) / self.temperature
            logits.append(ops.where(left_out, -INFINITE, cosines))
        positives = ops.sum(own[:, 0] * own[:, 1], axis=-1) / self.temperature
        return ops.logsumexp(ops.concatenate(logits, axis=1), axis=1) - positives


@keras.saving.register_keras_serializable("bertzoo")
class MegaBatchMargin(InBatchLoss):
    """max(0, positive margin - cosine of a pair) + max(0, cosine of the anchor and the nearest other positive -
    negative margin) (Wieting and Gimpel 2018).

    Args:
        positive_margin: The cosine that pairs must reach.
        negative_margin: The cosine that others must not exceed.
    """

    arguments = ("positive_margin", "negative_margin")
    columns = (2, 2)

    def __init__(self, positive_margin: float = 0.8, negative_margin: float = 0.3, **kwargs: Any):
        super().__init__(**kwargs)
        self.positive_margin, self.negative_margin = positive_margin, negative_margin

    def block_losses(self, rows: Tensor, y_true: Tensor, vectors: Tensor) -> Tensor:
        own = ops.take(vectors, rows, axis=0)
        cosines = _scores(own[:, 0], vectors[:, 1])
        nearest = ops.max(ops.where(_is_own(rows, vectors), -INFINITE, cosines), axis=1)
        positives = ops.sum(own[:, 0] * own[:, 1], axis=-1)
        return ops.relu(self.positive_margin - positives) + ops.relu(nearest - self.negative_margin)
