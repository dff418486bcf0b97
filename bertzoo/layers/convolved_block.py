"""A block beside which a convolution sees neighbouring tokens, as the first of DeBERTa v2 XL (He et al. 2021)."""

import keras
from keras import ops

from bertzoo.layers.activations import activation
from bertzoo.layers.attention import as_attention_mask
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.dropout import dropout
from bertzoo.layers.initialization import build_dense
from bertzoo.layers.layer_norm import LayerNorm
from bertzoo.layers.residual_norm import added


@keras.saving.register_keras_serializable("bertzoo")
class ConvolvedBlock(EncoderBlock):
    """(batch, length, hidden) -> (batch, length, hidden): LayerNorm(block(x) + activation(convolution(x))).

    Both the convolution's and the final result are 0 at padding.

    Args:
        kernel_size: How many tokens the convolution sees; odd.
        convolution_activation: Name of its activation.
        args, kwargs: EncoderBlock's.
    """

    def __init__(self, *args, kernel_size: int = 3, convolution_activation: str = "tanh", **kwargs):
        super().__init__(*args, **kwargs)
        self.kernel_size, self.convolution_activation = kernel_size, convolution_activation
        self.convolution = keras.layers.Conv1D(
            self.hidden_size, kernel_size, padding="same", name="convolution", dtype=self.dtype_policy
        )
        self.convolution_norm = LayerNorm(self.layer_norm_eps, name="convolution_norm", dtype=self.dtype_policy)

    def build(self, input_shape):
        super().build(input_shape)
        build_dense(self, self.convolution, self.hidden_size, self.initializer_range)
        self.convolution_norm.build((None, None, self.hidden_size))

    def call(self, x, attention_mask=None, position_bias=None, key=None, return_attention: bool = False, training=None):
        """Arguments and results as EncoderBlock's."""
        key = self.key_of(key, training)
        out = super().call(
            x, attention_mask=attention_mask, position_bias=position_bias, key=key, return_attention=return_attention
        )
        out, weights = out if return_attention else (out, None)
        near = self.convolution(x)
        if attention_mask is not None:
            real = ops.transpose(as_attention_mask(attention_mask).mask[:, 0], (0, 2, 1))  # (batch, length, 1)
            near = ops.where(real, near, ops.zeros((), near.dtype))
        near = activation(self.convolution_activation)(dropout(near, self.hidden_dropout, key, salt=4))
        out = self.convolution_norm(added(out, near))
        if attention_mask is not None:
            out = ops.where(real, out, ops.zeros((), out.dtype))
        return (out, weights) if return_attention else out

    def get_config(self):
        names = ("kernel_size", "convolution_activation")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
