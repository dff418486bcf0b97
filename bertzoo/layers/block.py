"""The post-LN block: attention, then feed-forward, each added to its input and normalised. And the pooler."""

from typing import Any

import keras

from bertzoo.dispatch import dispatched_operation
from bertzoo.layers.attention import AttentionLayer, SelfAttention
from bertzoo.layers.base import Layer, build_dense
from bertzoo.layers.functional import LayerNorm, activation, add, apply_dense, dense_then_activation, dropout
from bertzoo.random import Salt
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class EncoderBlock(AttentionLayer):
    """(batch, length, hidden) -> (batch, length, hidden) (Devlin et al. 2019, section 3; Vaswani et al. 2017).

    Args:
        hidden_size, num_heads, intermediate_size: Widths, and the number of attention heads.
        activation: Name of the feed-forward activation, as in config.json.
        hidden_dropout, attention_dropout: Fractions of elements, and of attention weights, that are dropped.
        layer_norm_eps, initializer_range: Added to variances; standard deviation of the initial kernels.
        attention_output_dropout: Fraction of elements dropped after attention; `hidden_dropout` where None.
        attention: Another kind of SelfAttention, for families that differ there.
        name: The layer's name.

    Example:
        >>> block = bz.layers.EncoderBlock(num_heads=2, hidden_size=8, intermediate_size=16)
        >>> tuple(block(np.zeros((1, 3, 8))).shape)
        (1, 3, 8)
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
        dtype = self.dtype_policy
        self.attention = attention or SelfAttention(
            hidden_size, num_heads, attention_dropout, initializer_range, dtype=dtype
        )
        self.attention_norm = LayerNorm(layer_norm_eps, name="attention_norm", dtype=dtype)
        self.intermediate = keras.layers.Dense(intermediate_size, name="intermediate", dtype=dtype)
        self.output_dense = keras.layers.Dense(hidden_size, name="output", dtype=dtype)
        self.output_norm = LayerNorm(layer_norm_eps, name="output_norm", dtype=dtype)

    def build(self, input_shape: Any) -> None:
        shape = (None, None, self.hidden_size)
        if not self.attention.built:  # the caller's own may be, or belong to another block too
            self.attention.build(shape)
        self.attention_norm.build(shape)
        build_dense(self, self.intermediate, self.hidden_size, self.initializer_range)
        build_dense(self, self.output_dense, self.intermediate_size, self.initializer_range)
        self.output_norm.build(shape)

    def _forward(
        self, x, attention_mask, position_bias, key, return_attention, query, select
    ) -> tuple[Tensor, Tensor | None]:
        attention, rate, salt = self.attention, self.attention_output_dropout, Salt.ATTENTION_OUTPUT
        context, weights = attention.compute_context(x, attention_mask, position_bias, key, return_attention, query)
        residual = x if query is None else query
        if select is not None:
            context, residual = select(context), select(residual)
            key = select.key(key, residual)
        x = residual_norm(self.attention_norm, attention.output_dense, context, residual, rate, key, salt)
        inner = self._expand(x, key)
        x = residual_norm(self.output_norm, self.output_dense, inner, x, self.hidden_dropout, key, Salt.FEED_FORWARD)
        return x, weights

    def _expand(self, x: Tensor, key: Tensor | None) -> Tensor:
        """The inside of the feed-forward part, (batch, length, intermediate)."""
        return dense_then_activation(self.intermediate, self.activation, x)


@dispatched_operation
def residual_norm(
    norm: LayerNorm, dense: keras.layers.Layer, x: Tensor, residual: Tensor, rate: float, key: Tensor | None, salt: int
) -> Tensor:
    """norm(residual + dropout(dense(x))), which ends both halves of a post-LN block.

    x is (batch, length, in); the residual and the result are (batch, length, out).
    """
    return norm(add(residual, dropout(apply_dense(dense, x), rate, key, salt)))


@keras.saving.register_keras_serializable("bertzoo")
class Pooler(Layer):
    """(batch, length, hidden) -> (batch, hidden): activation(dense(first token)) (Devlin et al. 2019, section 3.1).

    Args:
        hidden_size, activation: Width of the input and the output; name of the activation.
        initializer_range: Standard deviation of the initial kernel.
        name: The layer's name.
    """

    def __init__(
        self,
        hidden_size: int,
        activation: str = "tanh",
        initializer_range: float = 0.02,
        name: str = "pooler",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.hidden_size, self.activation, self.initializer_range = hidden_size, activation, initializer_range
        self.dense = keras.layers.Dense(hidden_size, name="dense", dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        build_dense(self, self.dense, self.hidden_size, self.initializer_range)

    def call(self, sequence: Tensor) -> Tensor:
        return activation(self.activation)(self.dense(sequence[:, 0]))
