"""DeBERTa's embeddings: projected to the encoder's width before normalisation, and 0 at padding (He et al. 2021)."""

import keras
from keras import ops

from bertzoo.layers.dropout import dropout
from bertzoo.layers.embeddings import Embeddings
from bertzoo.layers.initialization import build_dense


@keras.saving.register_keras_serializable("bertzoo")
class MaskedEmbeddings(Embeddings):
    """int (batch, length) -> float (batch, length, width), or (batch, length, projection); arguments as Embeddings'."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.dense is not None:
            self.dense.use_bias = False

    def build(self, input_shape):
        self.make_tables()
        self.make_norm(self.projection or self.width)
        if self.dense is not None:
            build_dense(self, self.dense, self.width, self.initializer_range)

    def call(self, token_ids, segment_ids=None, padding_mask=None, key=None, perturbation=None, training=None):
        """Arguments as Embeddings'."""
        key = self.key_of(key, training)
        x = ops.cast(self.sum_tables(token_ids, segment_ids), self.compute_dtype)
        x = self.normalise(x if self.dense is None else self.dense(x), perturbation)
        if padding_mask is not None:
            x = ops.where(ops.cast(padding_mask, "bool")[:, :, None], x, ops.zeros((), x.dtype))
        return dropout(x, self.hidden_dropout, key)
