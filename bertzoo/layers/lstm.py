"""A bidirectional LSTM over rows of unlike length (Hochreiter and Schmidhuber 1997; Graves and Schmidhuber 2005)."""

from typing import Any

import keras
from keras import ops

from bertzoo.dispatch import dispatched_operation
from bertzoo.layers.base import HostTruncatedNormal, Layer
from bertzoo.types import Tensor

DIRECTIONS = ("forward", "backward")


@dispatched_operation
def lstm(x: Tensor, kernel: Tensor, recurrent_kernel: Tensor, bias: Tensor) -> Tensor:
    """The outputs of several LSTMs, each of its own rows: (LSTMs, batch, length, in) -> (LSTMs, batch, length, units).

    Gates stand in the order input, forget, cell, output.

    Args:
        x: The rows.
        kernel, recurrent_kernel: (LSTMs, in, 4 · units) and (LSTMs, units, 4 · units).
        bias: (LSTMs, 4 · units).
    """
    units = recurrent_kernel.shape[1]
    gates = ops.einsum("dbli,dig->ldbg", x, kernel) + bias[None, :, None, :]
    start = ops.zeros((2, *ops.shape(gates)[1:3], units), dtype=gates.dtype)

    def step(state: Tensor, gates_of_step: Tensor) -> tuple[Tensor, Tensor]:
        values = gates_of_step + ops.matmul(state[0], recurrent_kernel)
        enter, forget, new, leave = ops.split(values, 4, axis=-1)
        cell = ops.sigmoid(forget) * state[1] + ops.sigmoid(enter) * ops.tanh(new)
        hidden = ops.sigmoid(leave) * ops.tanh(cell)
        state = ops.stack([hidden, cell])
        return state, state  # on TensorFlow, outputs of `scan` must have the state's structure and shape

    _, states = ops.scan(step, start, gates)
    return ops.transpose(states[:, 0], (1, 2, 0, 3))


@keras.saving.register_keras_serializable("bertzoo")
class BidirectionalLSTM(Layer):
    """(batch, length, width) -> (batch, length, 2 · units): an LSTM from the left and one from the right, side by side.

    The one from the right begins at each row's last step. Both have two biases, as in PyTorch. Computes in float32.

    Args:
        units: The width of each direction's output.
        name: The layer's name.
    """

    def __init__(self, units: int, name: str = "lstm", **kwargs):
        super().__init__(name=name, **{**kwargs, "dtype": "float32"})
        self.units = units

    def build(self, input_shape: Any) -> None:
        shapes = {
            "kernel": (input_shape[-1], 4 * self.units),
            "recurrent_kernel": (self.units, 4 * self.units),
            "bias": (4 * self.units,),
            "recurrent_bias": (4 * self.units,),
        }
        for direction in DIRECTIONS:
            for kind, shape in shapes.items():
                name = f"{direction}_{kind}"
                # The variance that PyTorch's initial weights have.
                initializer: Any = "zeros"
                if kind.endswith("kernel"):
                    initializer = HostTruncatedNormal((3 * self.units) ** -0.5, f"{self.path}/{name}")
                setattr(self, name, self.add_weight(name=name, shape=shape, initializer=initializer))

    def call(self, x: Tensor, lengths: Tensor) -> Tensor:
        """
        Args:
            x: (batch, length, width).
            lengths: int (batch,), the steps of each row; what follows them has any output.
        """
        backwards = _reversed_positions(ops.shape(x)[1], lengths)
        kernel, recurrent_kernel, bias, recurrent_bias = (
            ops.stack([getattr(self, f"{direction}_{kind}").value for direction in DIRECTIONS])
            for kind in ("kernel", "recurrent_kernel", "bias", "recurrent_bias")
        )
        both = ops.stack([x, ops.take_along_axis(x, backwards, axis=1)])
        forward, backward = ops.unstack(lstm(both, kernel, recurrent_kernel, bias + recurrent_bias), 2)
        return ops.concatenate([forward, ops.take_along_axis(backward, backwards, axis=1)], axis=-1)


def _reversed_positions(length: Any, lengths: Tensor) -> Tensor:
    """For each step the one at its place when the first `lengths` steps of a row are reversed: (batch, length, 1)."""
    positions = ops.arange(length, dtype="int32")[None]
    last = ops.cast(lengths, "int32")[:, None] - 1
    return ops.where(positions <= last, last - positions, positions)[:, :, None]
