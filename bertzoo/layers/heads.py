"""Heads: what turns an encoder's output into logits. They know shapes, not families."""

import keras
from keras import ops

from bertzoo.layers.activations import activation
from bertzoo.layers.dropout import dropout
from bertzoo.layers.initialization import HostTruncatedNormal, build_dense
from bertzoo.layers.layer_norm import LayerNorm
from bertzoo.layers.own_key import OwnKey
from bertzoo.layers.query_positions import vectors_at


@keras.saving.register_keras_serializable("bertzoo")
class ClassificationHead(OwnKey):
    """(…, hidden) -> (…, labels) logits in float32: [dropout, dense, activation,] dropout, dense.

    Args:
        num_labels: Number of logits.
        dropout_rate: Share of elements dropped before the last dense layer.
        dense_activation: Name of the activation of a first dense layer hidden -> hidden; None for no such layer.
        first_dropout: Share of elements dropped before the first dense layer; `dropout_rate` where None.
        initializer_range: Standard deviation of the initial kernels.
    """

    def __init__(
        self,
        num_labels: int,
        dropout_rate: float = 0.1,
        dense_activation: str | None = None,
        first_dropout: float | None = None,
        initializer_range: float = 0.02,
        name: str = "classifier",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.num_labels, self.dropout_rate = num_labels, dropout_rate
        self.dense_activation, self.initializer_range = dense_activation, initializer_range
        self.first_dropout = dropout_rate if first_dropout is None else first_dropout
        # Created in build, where the width is known; the last layer computes in float32 whatever the policy.
        self.dense = None
        self.logits = keras.layers.Dense(num_labels, name="logits", dtype="float32")

    def build(self, input_shape):
        width = input_shape[-1]
        if self.dense_activation is not None:
            self.dense = keras.layers.Dense(width, name="dense", dtype=self.dtype_policy)
            build_dense(self, self.dense, width, self.initializer_range)
        build_dense(self, self.logits, width, self.initializer_range)

    def call(self, x, key=None, training=None):
        key = self.key_of(key, training)
        if self.dense is not None:
            x = activation(self.dense_activation)(self.dense(dropout(x, self.first_dropout, key, salt=0)))
        return self.logits(ops.cast(dropout(x, self.dropout_rate, key, salt=1), "float32"))

    def get_config(self):
        names = ("num_labels", "dropout_rate", "dense_activation", "first_dropout", "initializer_range")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable("bertzoo")
class MaskedLMHead(keras.layers.Layer):
    """(batch, places, hidden) -> (batch, places, vocabulary) logits in float32; the decoder is the token table, or a
    table of the head's own.

    dense, activation, LayerNorm, then the product with the token table and a bias per token (Devlin et al. 2019, A.1).

    Args:
        vocab_size: Rows of the token table.
        width: Width of the token table, which is the output of the dense layer.
        activation: Name of the activation.
        layer_norm_eps: Added to the variance.
        initializer_range: Standard deviation of the initial kernel.
        tied: Whether the decoder is the token table.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        activation: str = "gelu",
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        tied: bool = True,
        name: str = "masked_lm",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.vocab_size, self.width, self.activation = vocab_size, width, activation
        self.layer_norm_eps, self.initializer_range, self.tied = layer_norm_eps, initializer_range, tied
        self.dense = keras.layers.Dense(width, name="dense", dtype=self.dtype_policy)
        self.norm = LayerNorm(layer_norm_eps, dtype=self.dtype_policy)

    def build(self, input_shape):
        build_dense(self, self.dense, input_shape[-1], self.initializer_range)
        self.norm.build((None, None, self.width))
        if not self.tied:
            initializer = HostTruncatedNormal(self.initializer_range, f"{self.path}/decoder")
            shape = (self.vocab_size, self.width)
            self.decoder = self.add_weight(name="decoder", shape=shape, initializer=initializer, autocast=False)
        self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros", autocast=False)

    def prepare_hidden(self, x, before, last_block, key):
        """What the head reads, (batch, length, hidden); here, the encoder's output as it is.

        Args:
            x, before: The output of the encoder's last block, and what that block was applied to; each
                (batch, length, hidden).
            last_block: Applies the last block once more to `before`: (query stream, dropout key) -> its output.
            key: Dropout key, int32 (2,); None at inference.
        """
        return x

    def call(self, x, token_table, positions=None):
        """
        Args:
            x: (batch, length, hidden).
            token_table: (vocabulary, width), the encoder's.
            positions: int (batch, places), where to compute logits; everywhere where left out.
        """
        if positions is not None:
            x = vectors_at(x, positions)
        x = self.norm(activation(self.activation)(self.dense(x)))
        table = ops.cast(ops.convert_to_tensor(token_table if self.tied else self.decoder), x.dtype)
        return ops.cast(ops.matmul(x, ops.transpose(table)), "float32") + ops.cast(self.bias, "float32")

    def get_config(self):
        names = ("vocab_size", "width", "activation", "layer_norm_eps", "initializer_range", "tied")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
