"""Heads and pooling: from an encoder's output to logits, or to one vector per text (Reimers and Gurevych 2019)."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bertzoo.layers.attention import MASKED
from bertzoo.layers.base import DropoutLayer, Layer, build_dense
from bertzoo.layers.functional import LayerNorm, activation, dropout, gather_positions
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
        key = self.resolve_dropout_key(key, training)
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
        transforms: Whether there are dense layer, activation and LayerNorm, and not the product alone.
        decoder_bias: Whether there is a bias per token.
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
        transforms: bool = True,
        decoder_bias: bool = True,
        name: str = "masked_lm",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.vocab_size, self.width, self.activation = vocab_size, width, activation
        self.layer_norm_eps, self.initializer_range, self.tied = layer_norm_eps, initializer_range, tied
        self.use_bias, self.norm_bias, self.transforms, self.decoder_bias = (
            use_bias,
            norm_bias,
            transforms,
            decoder_bias,
        )
        if transforms:
            self.dense = keras.layers.Dense(width, use_bias=use_bias, name="dense", dtype=self.dtype_policy)
            self.norm = LayerNorm(layer_norm_eps, norm_bias, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        if self.transforms:
            build_dense(self, self.dense, input_shape[-1], self.initializer_range)
            self.norm.build((None, None, self.width))
        self.decoder = None if self.tied else self.add_embedding_table("decoder", self.vocab_size, self.width)
        self.bias = None
        if self.decoder_bias:
            self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros", autocast=False)

    def hidden_states_to_decode(
        self,
        last_output: Tensor,
        last_input: Tensor,
        last_block: Callable,
        dropout_key: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        """What the head reads, shaped as `last_output`; here, the encoder's output.

        Args:
            last_output: The output of the encoder's last block, (batch, length, hidden), or of the tokens at which the
                head predicts alone, (batch, count, hidden).
            last_input: The last block's input, (batch, length, hidden).
            last_block: Applies the last block once more to `last_input`: (query vectors, dropout key, selected=False)
                -> its output; with `selected=True` shaped as `last_output`.
            dropout_key: Dropout key, int32 (2,); None at inference.
            position_ids: int32 (batch, length), each token's position in its text; None where a row is a text.
        """
        return last_output

    def call(self, x: Tensor, token_embedding_table: Tensor, positions: Tensor | None = None) -> Tensor:
        """
        Args:
            x: (batch, length, hidden).
            token_embedding_table: (vocabulary, width), the encoder's.
            positions: int (batch, count), where to compute logits; everywhere where left out.
        """
        if positions is not None:
            x = gather_positions(x, positions)
        x = self.transform(x)
        table = ops.cast(self.decoder_table(token_embedding_table), x.dtype)
        logits = ops.cast(ops.matmul(x, ops.transpose(table)), "float32")
        return logits if self.bias is None else logits + ops.cast(self.bias, "float32")

    def transform(self, x: Tensor) -> Tensor:
        """What the decoder multiplies: dense, activation and LayerNorm, if there are any, (…, hidden) -> (…, width)."""
        return self.norm(activation(self.activation)(self.dense(x))) if self.transforms else x

    def decoder_table(self, token_embedding_table: Tensor) -> Tensor:
        """The decoder, (vocabulary, width): the encoder's token table where the head is tied to it, else its own."""
        return ops.convert_to_tensor(token_embedding_table if self.tied else self.decoder)

    def bias_or_zeros(self) -> Tensor:
        """float32 (vocabulary,), 0 where the head has none."""
        return ops.zeros((self.vocab_size,), "float32") if self.bias is None else ops.convert_to_tensor(self.bias)


# ---- pooling

# The modes of sentence-transformers, in the order in which it concatenates them; and a learnt one.
SHARED_POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
POOLINGS = (*SHARED_POOLINGS, "attention")


@keras.saving.register_keras_serializable("bertzoo")
class Pooling(Layer):
    """(batch, length, hidden) -> float32 (batch, modes × hidden); padding never counts.

    Args:
        modes: One of "cls" (the first token), "lasttoken", "max", "mean", "mean_sqrt_len_tokens" (the sum over the
            square root of the count), "weightedmean" (by position, 1, 2, …; Muennighoff 2022, section 3.1.1), and
            "attention" (a softmax of the products with a learnt vector, which starts as the mean; Yang et al. 2016,
            equations 5 to 7, without the hidden layer); or several, whose vectors are joined.
        include_prompt: False leaves the tokens of a prompt out; `SentenceEncoder.encode` then masks them.
        name: The layer's name.

    Raises:
        ValueError: A mode is unknown, or there is none.

    Example:
        >>> pooling = bz.layers.Pooling("mean")
        >>> x = np.array([[[1.0], [3.0], [9.0]]])
        >>> float(pooling(x, np.array([[1, 1, 0]]))[0, 0])  # padding does not count
        2.0
    """

    def __init__(
        self, modes: str | Sequence[str] = "mean", include_prompt: bool = True, name: str = "pooling", **kwargs
    ):
        super().__init__(name=name, **kwargs)
        self.modes = (modes,) if isinstance(modes, str) else tuple(modes)
        unknown = [mode for mode in self.modes if mode not in POOLINGS]
        if unknown or not self.modes:
            raise ValueError(f"Expected poolings of {', '.join(POOLINGS)}. Received: {modes!r}.")
        self.include_prompt = include_prompt

    def build(self, x_shape: Any, padding_mask_shape: Any = None) -> None:
        self.hidden_size = x_shape[-1]
        if "attention" in self.modes:
            self.attention = self.add_weight(
                name="attention", shape=(x_shape[-1],), initializer="zeros", dtype="float32"
            )

    def call(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """
        Args:
            x: (batch, length, hidden).
            padding_mask: (batch, length), 1 at the tokens that count; all where None.
        """
        x = ops.cast(x, "float32")
        mask = ops.ones_like(x[:, :, 0]) if padding_mask is None else ops.cast(padding_mask, "float32")
        vectors = [getattr(self, f"_{mode}")(x, mask) for mode in self.modes]
        return vectors[0] if len(vectors) == 1 else ops.concatenate(vectors, axis=-1)

    def _cls(self, x, mask):
        positions = _positions(x)
        return _first_by(x, ops.where(mask > 0, ops.max(positions) + 1 - positions, -positions))

    def _lasttoken(self, x, mask):
        positions = _positions(x)
        return _first_by(x, ops.where(mask > 0, positions + 1, -positions))

    def _max(self, x, mask):
        return ops.amax(ops.where(mask[:, :, None] > 0, x, MASKED), axis=1)

    def _mean(self, x, mask):
        return weighted_mean_over_tokens(x, mask)

    def _mean_sqrt_len_tokens(self, x, mask):
        count = ops.maximum(ops.sum(mask, axis=1, keepdims=True), 1e-9)
        return _sum(x, mask) / ops.sqrt(count)

    def _weightedmean(self, x, mask):
        positions = ops.arange(ops.shape(x)[1], dtype="float32")
        return weighted_mean_over_tokens(x, mask * (positions + 1))

    def _attention(self, x, mask):
        scores = ops.matmul(x, ops.convert_to_tensor(self.attention))
        return _sum(x, ops.softmax(ops.where(mask > 0, scores, MASKED), axis=1))

    def compute_output_spec(self, x: Tensor, padding_mask: Tensor | None = None) -> keras.KerasTensor:
        return keras.KerasTensor((x.shape[0], len(self.modes) * x.shape[-1]), "float32")


@keras.saving.register_keras_serializable("bertzoo")
class PooledHead(Layer):
    """(batch, length, hidden) -> (batch, labels): pooling and dense layers, which rerankers in the modular form of
    sentence-transformers have.

    Args:
        pooling: A `Pooling`.
        after_pooling: Keras `Dense` layers and `Normalize`; the last has as many units as there are labels.
        name: The layer's name.
    """

    def __init__(
        self, pooling: Pooling, after_pooling: Sequence[keras.layers.Layer], name: str = "pooled_head", **kwargs: Any
    ):
        super().__init__(name=name, **kwargs)
        self.pooling, self.after_pooling = pooling, list(after_pooling)

    def build(self, x_shape: Any, padding_mask_shape: Any = None) -> None:
        if not self.pooling.built:  # Keras's files build what is inside a layer first
            self.pooling.build((None, None, x_shape[-1]))
        width = x_shape[-1] * len(self.pooling.modes)
        for layer in self.after_pooling:
            if not layer.built:
                layer.build((None, width))
            width = getattr(layer, "units", width)

    def call(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """
        Args:
            x: (batch, length, hidden).
            padding_mask: (batch, length), 1 at the tokens that count; all where None.
        """
        x = self.pooling(x, padding_mask)
        for layer in self.after_pooling:
            x = layer(x)
        return x


@keras.saving.register_keras_serializable("bertzoo")
class Normalize(keras.layers.Layer):
    """(batch, width) -> the same vectors, of length 1."""

    def call(self, x: Tensor) -> Tensor:
        return l2_normalize(x)


def l2_normalize(x: Tensor) -> Tensor:
    """Vectors divided by their L2 norm, at least 1e-12; as torch.nn.functional.normalize."""
    # The argument of the root is at least (1e-12)²: the derivative of a root at 0 is infinite.
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-24))


def cosine_similarity(u: Tensor, v: Tensor) -> Tensor:
    """The cosine of two vectors, 0 if one is 0: (…, width) twice -> (…)."""
    return ops.sum(l2_normalize(u) * l2_normalize(v), axis=-1)


def _sum(x, weights):
    return ops.einsum("btd,bt->bd", x, weights)


def weighted_mean_over_tokens(x: Tensor, weights: Tensor) -> Tensor:
    """float32 (batch, length, width), (batch, length) -> (batch, width); 0 where all weights are 0."""
    return _sum(x, weights) / ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1e-9)


def _positions(x):
    """0, 1, … of the tokens: float32 (1, length)."""
    return ops.arange(ops.shape(x)[1], dtype="float32")[None]


def _first_by(x, order):
    """The token of each row with the highest number, which must be unique: (batch, width).

    A sum, not a look-up: exporters take the sizes of look-ups for constants.
    """
    return _sum(x, ops.cast(order == ops.max(order, axis=1, keepdims=True), "float32"))
