"""ModernBERT's layers (Warner et al. 2024): rotary and local attention, pre-norm blocks with a gated feed-forward."""

from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.backend import as_backend_constant
from bertzoo.layers.attention import AttentionLayer, AttentionMask, SelfAttention
from bertzoo.layers.base import build_dense
from bertzoo.layers.functional import LayerNorm, activation, add, dropout
from bertzoo.layers.heads import ClassificationHead
from bertzoo.layers.local_attention import has_key_mask, local_attention, pays_off
from bertzoo.random import Salt
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class RotaryAttention(SelfAttention):
    """(batch, length, hidden) -> (batch, length, hidden): self-attention with rotary positions (Su et al. 2021).

    Args:
        args, kwargs: SelfAttention's.
        theta: Base of the wavelengths.
        window: Tokens farther apart than this do not see each other; None for no limit.
        use_bias: Whether the dense layers have biases.
        output_initializer_range: Standard deviation of the output's initial kernel; `initializer_range` where None.
    """

    splits_projection = False

    def __init__(
        self,
        *args,
        theta: float = 10000.0,
        window: int | None = None,
        use_bias: bool = False,
        output_initializer_range: float | None = None,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.theta, self.window, self.use_bias = theta, window, use_bias
        self.output_initializer_range = (
            self.initializer_range if output_initializer_range is None else output_initializer_range
        )
        self.qkv.use_bias = self.output_dense.use_bias = use_bias

    def build(self, input_shape: Any) -> None:
        build_dense(self, self.qkv, self.hidden_size, self.initializer_range)
        build_dense(self, self.output_dense, self.hidden_size, self.output_initializer_range)
        head_size = self.hidden_size // self.num_heads
        self._frequency = as_backend_constant(self.theta ** (-np.arange(0, head_size, 2, dtype="float32") / head_size))

    def _mask_and_bias(
        self, queries: Tensor, keys: Tensor, mask: AttentionMask | None, bias: Tensor | None, key: Tensor | None
    ) -> tuple[AttentionMask | None, Tensor | None]:
        length = ops.shape(keys)[1]
        if self.window is not None and not (isinstance(length, int) and length <= self.window + 1):
            position = ops.arange(length, dtype="int32")
            near = (ops.abs(position[:, None] - position[None, :]) <= self.window)[None, None]
            mask = AttentionMask(near if mask is None else ops.logical_and(mask.mask, near))
        return mask, bias

    def _attend(self, queries, keys, values, mask, bias, key, cross) -> Tensor:
        length = ops.shape(keys)[1]
        if self.window is None or (isinstance(length, int) and not pays_off(length, self.window)):
            return super()._attend(queries, keys, values, mask, bias, key, cross)
        if cross or bias is not None or not has_key_mask(mask):
            return super()._attend(queries, keys, values, mask, bias, key, cross)
        return local_attention(queries, keys, values, self.window, mask)

    def _project(self, x: Tensor, query: Any = None, position_bias: Any = None) -> tuple[Tensor, ...]:
        queries, keys, values = super()._project(x, query, position_bias)
        angles = self._angles(x)
        return (
            _rotate_halves(queries, *(angles if query is None else self._angles(query))),
            _rotate_halves(keys, *angles),
            values,
        )

    def _angles(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine for each position, (length, 1, head size / 2) each."""
        position = ops.arange(ops.shape(x)[1], dtype="float32")
        angle = position[:, None, None] * self._frequency
        return ops.cos(angle), ops.sin(angle)


def _rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (x[i], x[i + half]) of the last axis by angles, in float32; same shape and dtype as x."""
    half = x.shape[-1] // 2
    first, second = ops.cast(x[..., :half], "float32"), ops.cast(x[..., half:], "float32")
    turned = ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return ops.cast(turned, x.dtype)


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
        norm = {"epsilon": layer_norm_eps, "center": norm_bias, "dtype": self.dtype_policy}
        if not is_first:
            self.attention_norm = LayerNorm(name="attention_norm", **norm)
        self.intermediate_norm = LayerNorm(name="intermediate_norm", **norm)
        if is_last:
            self.final_norm = LayerNorm(name="final_norm", **norm)
        dense = {"use_bias": use_bias, "dtype": self.dtype_policy}
        self.intermediate = keras.layers.Dense(2 * intermediate_size, name="intermediate", **dense)
        self.output_dense = keras.layers.Dense(hidden_size, name="output", **dense)

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
