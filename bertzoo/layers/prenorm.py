"""ModernBERT's block and heads: normalised before each part, with a gated feed-forward (Warner et al. 2024)."""

import keras
from keras import ops

from bertzoo.layers.base import DropoutLayer, build_dense
from bertzoo.layers.dense import activation
from bertzoo.layers.heads import ClassificationHead, MaskedLMHead
from bertzoo.layers.norm import LayerNorm, add, dropout
from bertzoo.random import Salt
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class PreNormBlock(DropoutLayer):
    """(batch, length, hidden) -> (batch, length, hidden): x + attention(norm(x)), and to that + feed-forward(norm).

    The feed-forward part is W2(activation(a) · g) with (a, g) = W1 x (Shazeer 2020).

    Args:
        attention: An attention layer with SelfAttention's call, `attention` by name.
        hidden_size, intermediate_size: Widths.
        activation: Name of the feed-forward activation, as in config.json.
        hidden_dropout: Share of elements dropped inside the feed-forward part.
        attention_output_dropout: Share of elements dropped after attention.
        layer_norm_eps: Added to the variance.
        initializer_range, output_range: Standard deviations of the initial kernels of W1 and W2.
        use_bias, norm_bias: Whether the dense layers, and the normalisations, have biases.
        first, last: Whether the block is the encoder's first, which does not normalise what attention reads, and its
            last, which normalises what comes out.
    """

    supports_query_subset = False

    def __init__(
        self,
        attention: keras.layers.Layer,
        hidden_size: int,
        intermediate_size: int,
        activation: str = "gelu",
        hidden_dropout: float = 0.0,
        attention_output_dropout: float = 0.0,
        layer_norm_eps: float = 1e-5,
        initializer_range: float = 0.02,
        output_range: float = 0.02,
        use_bias: bool = False,
        norm_bias: bool = False,
        first: bool = False,
        last: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.attention, self.hidden_size, self.intermediate_size = attention, hidden_size, intermediate_size
        self.activation, self.hidden_dropout, self.attention_output_dropout = (
            activation,
            hidden_dropout,
            attention_output_dropout,
        )
        self.layer_norm_eps, self.initializer_range, self.output_range = layer_norm_eps, initializer_range, output_range
        self.use_bias, self.norm_bias, self.first, self.last = use_bias, norm_bias, first, last
        norm = {"epsilon": layer_norm_eps, "center": norm_bias, "dtype": self.dtype_policy}
        self.attention_norm = None if first else LayerNorm(name="attention_norm", **norm)
        self.intermediate_norm = LayerNorm(name="intermediate_norm", **norm)
        self.final_norm = LayerNorm(name="final_norm", **norm) if last else None
        dense = {"use_bias": use_bias, "dtype": self.dtype_policy}
        self.intermediate = keras.layers.Dense(2 * intermediate_size, name="intermediate", **dense)
        self.output_dense = keras.layers.Dense(hidden_size, name="output", **dense)

    def build(self, input_shape):
        shape = (None, None, self.hidden_size)
        for layer in (self.attention, self.attention_norm, self.intermediate_norm, self.final_norm):
            if layer is not None and not layer.built:
                layer.build(shape)
        build_dense(self, self.intermediate, self.hidden_size, self.initializer_range)
        build_dense(self, self.output_dense, self.intermediate_size, self.output_range)

    def call(self, x, attention_mask=None, position_bias=None, key=None, return_attention: bool = False, training=None):
        """Arguments as SelfAttention's; returns the output, or (output, attention weights)."""
        key = self.key_of(key, training)
        read = x if self.first else self.attention_norm(x)
        attended = self.attention(
            read, attention_mask=attention_mask, position_bias=position_bias, key=key, return_attention=return_attention
        )
        attended, weights = attended if return_attention else (attended, None)
        x = add(x, dropout(attended, self.attention_output_dropout, key, Salt.ATTENTION_OUTPUT))
        inner, gate = ops.split(self.intermediate(self.intermediate_norm(x)), 2, axis=-1)
        inner = dropout(activation(self.activation)(inner) * gate, self.hidden_dropout, key, Salt.FEED_FORWARD)
        x = add(x, self.output_dense(inner))
        if self.last:
            x = self.final_norm(x)
        return (x, weights) if return_attention else x


@keras.saving.register_keras_serializable("bertzoo")
class NormedHead(ClassificationHead):
    """(…, hidden) -> (…, labels) logits in float32: dense, activation, LayerNorm, dropout, dense.

    Args:
        num_labels, dropout_rate, dense_activation: As ClassificationHead's.
        use_bias, norm_bias: Whether the first dense layer, and the normalisation, have biases.
        layer_norm_eps: Added to the variance.
        dense_range: Standard deviation of the initial kernel of the first dense layer.
    """

    def __init__(
        self,
        *args,
        use_bias: bool = False,
        norm_bias: bool = False,
        layer_norm_eps: float = 1e-5,
        dense_range: float = 0.02,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.use_bias, self.norm_bias = use_bias, norm_bias
        self.layer_norm_eps, self.dense_range = layer_norm_eps, dense_range
        self.norm = LayerNorm(layer_norm_eps, norm_bias, dtype=self.dtype_policy)

    def build(self, input_shape):
        width = input_shape[-1]
        self.dense = keras.layers.Dense(width, use_bias=self.use_bias, name="dense", dtype=self.dtype_policy)
        build_dense(self, self.dense, width, self.dense_range)
        self.norm.build(input_shape)
        build_dense(self, self.logits, width, self.initializer_range)

    def call(self, x: Tensor, key: Tensor | None = None, training: bool | None = None) -> Tensor:
        key = self.key_of(key, training)
        x = self.norm(activation(self.dense_activation)(self.dense(x)))
        return self.logits(ops.cast(dropout(x, self.dropout_rate, key, Salt.LOGITS_INPUT), "float32"))


@keras.saving.register_keras_serializable("bertzoo")
class BiaslessMaskedLMHead(MaskedLMHead):
    """As MaskedLMHead, whose dense layer and normalisation may lack biases; the decoder has one.

    Args:
        use_bias, norm_bias: Whether the dense layer, and the normalisation, have biases.
        args, kwargs: MaskedLMHead's.
    """

    def __init__(self, *args, use_bias: bool = False, norm_bias: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.use_bias, self.norm_bias = use_bias, norm_bias
        self.dense.use_bias, self.norm.center = use_bias, norm_bias
