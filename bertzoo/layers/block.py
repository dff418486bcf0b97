"""The post-LN block of the BERT family: attention, then feed-forward, each added to its input and normalised."""

import keras

from bertzoo.layers.activations import activated
from bertzoo.layers.attention import SelfAttention
from bertzoo.layers.initialization import build_dense
from bertzoo.layers.layer_norm import LayerNorm
from bertzoo.layers.own_key import OwnKey
from bertzoo.layers.residual_norm import residual_norm


@keras.saving.register_keras_serializable("bertzoo")
class EncoderBlock(OwnKey):
    """(batch, length, hidden) -> (batch, length, hidden) (Devlin et al. 2019, section 3; Vaswani et al. 2017).

    Args:
        hidden_size, num_heads, intermediate_size: Widths, and the number of attention heads.
        activation: Name of the feed-forward activation, as in config.json.
        hidden_dropout: Share of elements dropped after the feed-forward part, and after attention.
        attention_dropout: Share of attention weights dropped.
        layer_norm_eps: Added to the variance.
        initializer_range: Standard deviation of the initial kernels.
        attention_output_dropout: Share of elements dropped after attention; `hidden_dropout` where None.
        attention: Another kind of SelfAttention, for families that differ there.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        intermediate_size: int,
        activation: str = "gelu",
        hidden_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        attention_output_dropout: float | None = None,
        attention: keras.layers.Layer | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.hidden_size, self.num_heads, self.intermediate_size = hidden_size, num_heads, intermediate_size
        self.activation, self.hidden_dropout, self.attention_dropout = activation, hidden_dropout, attention_dropout
        self.layer_norm_eps, self.initializer_range = layer_norm_eps, initializer_range
        self.attention_output_dropout = hidden_dropout if attention_output_dropout is None else attention_output_dropout
        policy = self.dtype_policy
        self.attention = attention or SelfAttention(
            hidden_size, num_heads, attention_dropout, initializer_range, dtype=policy
        )
        self._takes_attention = attention is not None
        self.attention_norm = LayerNorm(layer_norm_eps, name="attention_norm", dtype=policy)
        self.intermediate = keras.layers.Dense(intermediate_size, name="intermediate", dtype=policy)
        self.output_dense = keras.layers.Dense(hidden_size, name="output", dtype=policy)
        self.output_norm = LayerNorm(layer_norm_eps, name="output_norm", dtype=policy)

    def build(self, input_shape):
        shape = (None, None, self.hidden_size)
        if not self.attention.built:  # the caller's own may be, or belong to another block too
            self.attention.build(shape)
        self.attention_norm.build(shape)
        build_dense(self, self.intermediate, self.hidden_size, self.initializer_range)
        build_dense(self, self.output_dense, self.intermediate_size, self.initializer_range)
        self.output_norm.build(shape)

    def call(
        self,
        x,
        attention_mask=None,
        position_bias=None,
        key=None,
        return_attention: bool = False,
        query=None,
        training=None,
    ):
        """Arguments as SelfAttention's; returns the output, or (output, attention weights).

        Where a `query` stream attends to x, what comes out is added to it.
        """
        key = self.key_of(key, training)
        context, weights = self.attention.context(x, attention_mask, position_bias, key, return_attention, query)
        x = x if query is None else query
        dense = self.attention.output_dense
        x = residual_norm(self.attention_norm, dense, context, x, self.attention_output_dropout, key, salt=1)
        inner = activated(self.intermediate, self.activation, x)
        x = residual_norm(self.output_norm, self.output_dense, inner, x, self.hidden_dropout, key, salt=2)
        return (x, weights) if return_attention else x

    def get_config(self):
        names = (
            "hidden_size",
            "num_heads",
            "intermediate_size",
            "activation",
            "hidden_dropout",
            "attention_dropout",
            "layer_norm_eps",
            "initializer_range",
            "attention_output_dropout",
        )
        config = {**super().get_config(), **{name: getattr(self, name) for name in names}}
        if self._takes_attention:
            config["attention"] = keras.saving.serialize_keras_object(self.attention)
        return config

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if "attention" in config:
            config["attention"] = keras.saving.deserialize_keras_object(config["attention"])
        return cls(**config)
