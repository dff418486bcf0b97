"""Losses of a vector for each token, (batch, columns, tokens, width): the score of a text is MaxSim (Khattab and
Zaharia 2020, section 3.3). A vector of zeros is that of a token that does not count."""

from typing import Any

import keras
from keras import ops

from bertzoo.layers.slices import map_row_blocks
from bertzoo.losses.base import INFINITE, SentenceLoss
from bertzoo.losses.distillation import KLDistillation, MarginMSE
from bertzoo.metrics.maxsim import EMPTY_DOCUMENT
from bertzoo.types import Tensor

PRODUCTS_AT_ONCE = 2**25  # 128 MB


def maxsim_scores(queries: Tensor, documents: Tensor, mean: bool = False) -> Tensor:
    """Each query against each document, as `bertzoo.metrics.maxsim`.

    Args:
        queries: float (n, tokens, width).
        documents: (m, tokens, width).
        mean: Whether to divide by the number of a query's tokens.

    Returns:
        float32 (n, m).
    """
    return _reduce(ops.einsum("nqw,mtw->nmqt", queries, documents), queries[:, None], documents[None], mean)


def own_maxsim_scores(vectors: Tensor, mean: bool = False) -> Tensor:
    """The first text of each example against the others of it: (batch, columns, tokens, width) -> (batch, columns - 1).

    Args:
        vectors: The vectors.
        mean: As for `maxsim_scores`.
    """
    queries, documents = vectors[:, 0], vectors[:, 1:]
    return _reduce(ops.einsum("bqw,bctw->bcqt", queries, documents), queries[:, None], documents, mean)


def _reduce(products: Tensor, queries: Tensor, documents: Tensor, mean: bool) -> Tensor:
    """Products of tokens (…, query tokens, document tokens) -> scores (…)."""
    of_query, of_document = (ops.any(x != 0, axis=-1) for x in (queries, documents))
    products = ops.where(of_document[..., None, :], ops.cast(products, "float32"), -INFINITE)
    weights = ops.cast(of_query, "float32")
    scores = ops.sum(ops.amax(products, axis=-1) * weights, axis=-1)
    scores = ops.where(ops.any(of_document, axis=-1), scores, EMPTY_DOCUMENT)
    return scores / ops.maximum(ops.sum(weights, axis=-1), 1.0) if mean else scores


@keras.saving.register_keras_serializable("bertzoo")
class MultiVectorMultipleNegativesRanking(SentenceLoss):
    """Cross-entropy of finding a query's positive among the documents of all examples by MaxSim.

    Examples are (query, positive) or (query, positive, negative, …).

    Args:
        scale: Factor on the scores before the softmax.
        mean: Whether scores are divided by the number of a query's tokens ("meanmaxsim").
    """

    arguments = ("scale", "mean")
    target = None
    columns = (2, None)
    compares_examples = in_batch_negatives = token_vectors = True

    def __init__(self, scale: float = 1.0, mean: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.scale, self.mean = scale, mean

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        batch, columns, tokens, width = ops.shape(y_pred)
        static = y_pred.shape[0] is not None and y_pred.shape[2] is not None
        # Scores are computed for some queries at a time, and again for their gradient.
        rows = max(1, PRODUCTS_AT_ONCE // (batch * (columns - 1) * tokens * tokens)) if static else 1

        def losses(rows: Tensor, vectors: Tensor) -> Tensor:
            documents = ops.reshape(vectors[:, 1:], (-1, tokens, width))
            own = ops.take(vectors, rows, axis=0)
            scores = self.scale * maxsim_scores(own[:, 0], documents, self.mean)
            positives = self.scale * own_maxsim_scores(own[:, :2], self.mean)[:, 0]
            return ops.logsumexp(scores, axis=1) - positives

        return map_row_blocks(losses, batch, rows, [y_pred])


@keras.saving.register_keras_serializable("bertzoo")
class MultiVectorKLDistillation(KLDistillation):
    """`KLDistillation` of MaxSim (Santhanam et al. 2022, section 3.2).

    Args:
        temperature, teacher_temperature: As for `KLDistillation`.
    """

    token_vectors = True

    def scores(self, y_pred: Tensor) -> Tensor:
        return own_maxsim_scores(y_pred)


@keras.saving.register_keras_serializable("bertzoo")
class MultiVectorMarginMSE(MarginMSE):
    """`MarginMSE` of MaxSim."""

    token_vectors = True

    def scores(self, y_pred: Tensor) -> Tensor:
        return own_maxsim_scores(y_pred)
