"""A block that normalises what its parts read, not what comes out, with a gated feed-forward (Warner et al. 2024)."""

import keras
from keras import ops

from bertzoo.layers.activations import activation
from bertzoo.layers.dropout import dropout
from bertzoo.layers.initialization import build_dense
from bertzoo.layers.layer_norm import LayerNorm
from bertzoo.layers.own_key import OwnKey
from bertzoo.layers.residual_norm import added


@keras.saving.register_keras_serializable("bertzoo")
class PreNormBlock(OwnKey):
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
        x = added(x, dropout(attended, self.attention_output_dropout, key, salt=1))
        inner, gate = ops.split(self.intermediate(self.intermediate_norm(x)), 2, axis=-1)
        inner = dropout(activation(self.activation)(inner) * gate, self.hidden_dropout, key, salt=2)
        x = added(x, self.output_dense(inner))
        if self.last:
            x = self.final_norm(x)
        return (x, weights) if return_attention else x

    def get_config(self):
        names = (
            "hidden_size",
            "intermediate_size",
            "activation",
            "hidden_dropout",
            "attention_output_dropout",
            "layer_norm_eps",
            "initializer_range",
            "output_range",
            "use_bias",
            "norm_bias",
            "first",
            "last",
        )
        attention = keras.saving.serialize_keras_object(self.attention)
        return {**super().get_config(), **{name: getattr(self, name) for name in names}, "attention": attention}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "attention": keras.saving.deserialize_keras_object(config["attention"])})
