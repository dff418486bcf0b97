"""EuroBERT's embeddings, which are not normalised, and its classifier (Boizard et al. 2025)."""

from typing import Any

import keras
from keras import ops

from bertzoo.layers.embeddings import Embeddings
from bertzoo.layers.functional import activation, dropout
from bertzoo.layers.heads import ClassificationHead
from bertzoo.random import Salt
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class PlainEmbeddings(Embeddings):
    """int (batch, length) -> float (batch, length, width): the sum of the tables, neither normalised nor dropped out.

    Args:
        args, kwargs: Embeddings'.
    """

    def build(self, input_shape: Any) -> None:
        self._make_tables()

    def _finish(self, x, padding_mask, key, perturbation) -> Tensor:
        return x if perturbation is None else x + ops.cast(perturbation, x.dtype)


@keras.saving.register_keras_serializable("bertzoo")
class LatePoolingHead(ClassificationHead):
    """(batch, hidden) -> (batch, labels) logits in float32: dropout, dense. Its first dense layer and activation are
    for tokens, whose mean it reads: `prepare_tokens`.

    Args:
        args, kwargs: ClassificationHead's.
    """

    def prepare_tokens(self, x: Tensor) -> Tensor:
        """What is averaged, of the encoder's output: (batch, length, hidden) -> the same."""
        return activation(self.dense_activation or "gelu")(self.dense(x))

    def call(self, x: Tensor, key: Tensor | None = None, training: bool | None = None) -> Tensor:
        key = self.resolve_dropout_key(key, training)
        return self.logits(ops.cast(dropout(x, self.dropout_rate, key, Salt.LOGITS_INPUT), "float32"))
