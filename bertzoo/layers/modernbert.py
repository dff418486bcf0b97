"""ModernBERT's layers (Warner et al. 2024): pre-norm blocks with a gated feed-forward, and a head with a LayerNorm."""

from typing import Any

import keras
from keras import ops

from bertzoo.layers.attention import AttentionLayer
from bertzoo.layers.base import build_dense
from bertzoo.layers.functional import LayerNorm, RMSNorm, activation, add, dropout
from bertzoo.layers.heads import ClassificationHead
from bertzoo.random import Salt
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class PreNormBlock(AttentionLayer):
    """(batch, length, hidden) -> (batch, length, hidden): x + attention(norm(x)), and to that + feed-forward(norm).

    The feed-forward part is W2(activation(a) · g) with (a, g) = W1 x (Shazeer 2020).

    Args:
        attention: An attention layer with SelfAttention's call, `attention` by name.
        hidden_size, intermediate_size: Widths.
        activation: Name of the feed-forward activation, as in config.json.
        hidden_dropout: Fraction of elements dropped inside the feed-forward part.
        attention_output_dropout: Fraction of elements dropped after attention.
        layer_norm_eps: Added to the variance.
        initializer_range, output_initializer_range: Standard deviations of the initial kernels of W1 and W2.
        use_bias, norm_bias: Whether the dense layers, and the normalisations, have biases.
        rms_norm: Whether the normalisations divide by the root mean square alone.
        is_first, is_last: Whether the block is the encoder's first, which does not normalise what attention reads, and
            its last, which normalises what comes out.
        name: The layer's name.
    """

    accepts_query = False

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
        output_initializer_range: float = 0.02,
        use_bias: bool = False,
        norm_bias: bool = False,
        rms_norm: bool = False,
        is_first: bool = False,
        is_last: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.attention, self.hidden_size, self.intermediate_size = attention, hidden_size, intermediate_size
        self.activation, self.hidden_dropout = activation, hidden_dropout
        self.attention_output_dropout, self.layer_norm_eps = attention_output_dropout, layer_norm_eps
        self.initializer_range, self.output_initializer_range = initializer_range, output_initializer_range
        self.use_bias, self.norm_bias, self.is_first, self.is_last = use_bias, norm_bias, is_first, is_last
        self.rms_norm = rms_norm
        if not is_first:
            self.attention_norm = self._make_norm("attention_norm")
        self.intermediate_norm = self._make_norm("intermediate_norm")
        if is_last:
            self.final_norm = self._make_norm("final_norm")
        dense = {"use_bias": use_bias, "dtype": self.dtype_policy}
        self.intermediate = keras.layers.Dense(2 * intermediate_size, name="intermediate", **dense)
        self.output_dense = keras.layers.Dense(hidden_size, name="output", **dense)

    def _make_norm(self, name: str) -> keras.layers.Layer:
        if self.rms_norm:
            return RMSNorm(self.layer_norm_eps, name=name, dtype=self.dtype_policy)
        return LayerNorm(self.layer_norm_eps, self.norm_bias, name=name, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        shape = (None, None, self.hidden_size)
        norms = [getattr(self, name, None) for name in ("attention_norm", "intermediate_norm", "final_norm")]
        for layer in (self.attention, *norms):
            if layer is not None and not layer.built:
                layer.build(shape)
        build_dense(self, self.intermediate, self.hidden_size, self.initializer_range)
        build_dense(self, self.output_dense, self.intermediate_size, self.output_initializer_range)

    def _forward(
        self, x, attention_mask, position_bias, key, return_attention, query, select
    ) -> tuple[Tensor, Tensor | None]:
        read = x if self.is_first else self.attention_norm(x)
        options = {"attention_mask": attention_mask, "position_bias": position_bias, "key": key, "select": select}
        out = self.attention(read, **options, return_attention=return_attention)
        out, weights = out if return_attention else (out, None)
        if select is not None:
            x = select(x)
            key = select.key(key, x)
        x = add(x, dropout(out, self.attention_output_dropout, key, Salt.ATTENTION_OUTPUT))
        inner, gate = ops.split(self.intermediate(self.intermediate_norm(x)), 2, axis=-1)
        inner = dropout(activation(self.activation)(inner) * gate, self.hidden_dropout, key, Salt.FEED_FORWARD)
        x = add(x, self.output_dense(inner))
        return self.final_norm(x) if self.is_last else x, weights


@keras.saving.register_keras_serializable("bertzoo")
class NormedHead(ClassificationHead):
    """(…, hidden) -> (…, labels) logits in float32: dense, activation, LayerNorm, dropout, dense.

    Args:
        args, kwargs: ClassificationHead's.
        use_bias, norm_bias: Whether the first dense layer, and the normalisation, have biases.
        layer_norm_eps: Added to the variance.
        dense_initializer_range: Standard deviation of the initial kernel of the first dense layer.
    """

    def __init__(
        self,
        *args,
        use_bias: bool = False,
        norm_bias: bool = False,
        layer_norm_eps: float = 1e-5,
        dense_initializer_range: float = 0.02,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.use_bias, self.norm_bias = use_bias, norm_bias
        self.layer_norm_eps, self.dense_initializer_range = layer_norm_eps, dense_initializer_range
        self.norm = LayerNorm(layer_norm_eps, norm_bias, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        width = input_shape[-1]
        self.dense = keras.layers.Dense(width, use_bias=self.use_bias, name="dense", dtype=self.dtype_policy)
        build_dense(self, self.dense, width, self.dense_initializer_range)
        self.norm.build(input_shape)
        build_dense(self, self.logits, width, self.initializer_range)

    def call(self, x: Tensor, key: Tensor | None = None, training: bool | None = None) -> Tensor:
        key = self.resolve_dropout_key(key, training)
        x = self.norm(activation(self.dense_activation or "gelu")(self.dense(x)))
        return self.logits(ops.cast(dropout(x, self.dropout_rate, key, Salt.LOGITS_INPUT), "float32"))
