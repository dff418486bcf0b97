"""Heads: what turns an encoder's output into logits. They know shapes, not families."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bertzoo.layers.base import DropoutLayer, Layer, build_dense
from bertzoo.layers.functional import LayerNorm, activation, dropout, vectors_at
from bertzoo.random import Salt
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class ClassificationHead(DropoutLayer):
    """(…, hidden) -> (…, labels) logits in float32: [dropout, dense, activation,] dropout, dense.

    Args:
        num_labels: Number of logits.
        dropout_rate: Fraction of elements dropped before the last dense layer.
        dense_activation: Name of the activation of a first dense layer hidden -> hidden; None for no such layer.
        first_dropout: Fraction of elements dropped before the first dense layer; `dropout_rate` where None.
        initializer_range: Standard deviation of the initial kernels.
        name: The layer's name.
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
        # The first dense layer is created in build, where the width is known; the last computes in float32 whatever the
        # policy.
        self.logits = keras.layers.Dense(num_labels, name="logits", dtype="float32")

    def build(self, input_shape: Any) -> None:
        width = input_shape[-1]
        if self.dense_activation is not None:
            self.dense = keras.layers.Dense(width, name="dense", dtype=self.dtype_policy)
            build_dense(self, self.dense, width, self.initializer_range)
        build_dense(self, self.logits, width, self.initializer_range)

    def call(self, x: Tensor, key: Tensor | None = None, training: bool | None = None) -> Tensor:
        key = self.key_of(key, training)
        if self.dense_activation is not None:
            x = self.dense(dropout(x, self.first_dropout, key, Salt.DENSE_INPUT))
            x = activation(self.dense_activation)(x)
        return self.logits(ops.cast(dropout(x, self.dropout_rate, key, Salt.LOGITS_INPUT), "float32"))


@keras.saving.register_keras_serializable("bertzoo")
class MaskedLMHead(Layer):
    """(batch, positions, hidden) -> (batch, positions, vocabulary) logits in float32.

    dense, activation, LayerNorm, then the product with the token table, or a table of the head's own, and a bias per
    token (Devlin et al. 2019, A.1).

    Args:
        vocab_size: Rows of the token table.
        width: Width of the token table, which is the output of the dense layer.
        activation: Name of the activation.
        layer_norm_eps: Added to the variance.
        initializer_range: Standard deviation of the initial kernel.
        tied: Whether the decoder is the token table.
        use_bias, norm_bias: Whether the dense layer, and the normalisation, have biases.
        name: The layer's name.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        activation: str = "gelu",
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        tied: bool = True,
        use_bias: bool = True,
        norm_bias: bool = True,
        name: str = "masked_lm",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.vocab_size, self.width, self.activation = vocab_size, width, activation
        self.layer_norm_eps, self.initializer_range, self.tied = layer_norm_eps, initializer_range, tied
        self.use_bias, self.norm_bias = use_bias, norm_bias
        self.dense = keras.layers.Dense(width, use_bias=use_bias, name="dense", dtype=self.dtype_policy)
        self.norm = LayerNorm(layer_norm_eps, norm_bias, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        build_dense(self, self.dense, input_shape[-1], self.initializer_range)
        self.norm.build((None, None, self.width))
        self.decoder = None if self.tied else self.add_table("decoder", self.vocab_size, self.width)
        self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros", autocast=False)

    def prepare_hidden(self, x: Tensor, before: Tensor, last_block: Callable, key: Tensor | None) -> Tensor:
        """What the head reads, (batch, length, hidden); here, the encoder's output.

        Args:
            x, before: The output of the encoder's last block, and its input; each (batch, length, hidden).
            last_block: Applies the last block once more to `before`: (query vectors, dropout key) -> its output.
            key: Dropout key, int32 (2,); None at inference.
        """
        return x

    def call(self, x: Tensor, token_table: Tensor, positions: Tensor | None = None) -> Tensor:
        """
        Args:
            x: (batch, length, hidden).
            token_table: (vocabulary, width), the encoder's.
            positions: int (batch, count), where to compute logits; everywhere where left out.
        """
        if positions is not None:
            x = vectors_at(x, positions)
        x = self.norm(activation(self.activation)(self.dense(x)))
        table = ops.cast(ops.convert_to_tensor(token_table if self.tied else self.decoder), x.dtype)
        return ops.cast(ops.matmul(x, ops.transpose(table)), "float32") + ops.cast(self.bias, "float32")
