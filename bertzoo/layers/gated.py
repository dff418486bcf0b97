"""A post-norm block whose feed-forward part is gated."""

import keras
from keras import ops

from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.functional import activation, apply_dense, dropout
from bertzoo.random import Salt
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class GatedBlock(EncoderBlock):
    """(batch, length, hidden) -> (batch, length, hidden): an EncoderBlock whose feed-forward part is
    W2(a · activation(g)) with (a, g) = W1 x, W1 without bias (Shazeer 2020, "GLU Variants", equation 6).

    Args:
        args, kwargs: EncoderBlock's.
        output_bias: Whether W2 has a bias.
        gated_dropout: Fraction of elements dropped between the gate and W2.
    """

    def __init__(self, *args, output_bias: bool = True, gated_dropout: float = 0.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.output_bias, self.gated_dropout = output_bias, gated_dropout
        self.intermediate.units, self.intermediate.use_bias = 2 * self.intermediate_size, False
        self.output_dense.use_bias = output_bias

    def _expand(self, x: Tensor, key: Tensor | None) -> Tensor:
        inner, gate = ops.split(apply_dense(self.intermediate, x), 2, axis=-1)
        return dropout(inner * activation(self.activation)(gate), self.gated_dropout, key, Salt.GATED)
