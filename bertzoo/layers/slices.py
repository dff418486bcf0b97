"""Work done slice by slice, so that its memory is that of one slice, in the backward pass too."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bertzoo.types import Tensor


def slice_sizes(num_rows: Any, most: int) -> tuple[Any, Any]:
    """Into how many slices of one size, at most `most`, rows are cut, and that size; the last slice may be padded.

    Args:
        num_rows: An int, or a scalar tensor in TensorFlow's graphs.
        most: The largest size.
    """
    count = (num_rows + most - 1) // most
    return count, (num_rows + count - 1) // count


def cut_into_slices(x: Tensor, count: Any, size: Any) -> Tensor:
    """(rows, …) -> (count, size, …), with zeros at the end."""
    shape = ops.shape(x)
    # Not `ops.pad`, which counts its calls: PyTorch would compile each step anew.
    zeros = ops.zeros((count * size - shape[0], *shape[1:]), x.dtype)
    return ops.reshape(ops.concatenate([x, zeros]), (count, size, *shape[1:]))


def map_slices(function: Callable[..., Tensor], slices: Sequence[Tensor], shared: Sequence[Tensor] = ()) -> Tensor:
    """The function of each slice, one after another, stacked.

    What is inside the function is computed anew in the backward pass, slice by slice, instead of stored (Gao et al.
    2021, "Scaling deep contrastive learning batch size under memory limited setup", section 3).

    Args:
        function: Called as `function(*slice, *shared)`.
        slices: Arrays (count, size, …).
        shared: Further tensors for each call. Those with gradients must be among these: TensorFlow's recomputation
            gives no gradient to tensors in a closure.

    Returns:
        (count, …).
    """
    recomputed = keras.remat(function)
    return ops.map(lambda one: recomputed(*one, *shared), list(slices))


def map_row_blocks(function: Callable[..., Tensor], num_rows: Any, most: int, shared: Sequence[Tensor] = ()) -> Tensor:
    """One number for each row, from a function of a block of rows, as `map_slices`.

    Args:
        function: Called as `function(indices, *shared)` with int32 (block,); returns (block,).
        num_rows: How many rows there are.
        most: The largest number of rows in a block.
        shared: As for `map_slices`.

    Returns:
        (rows,).
    """
    indices = ops.arange(num_rows, dtype="int32")
    if isinstance(num_rows, int) and num_rows <= most:
        return function(indices, *shared)
    count, size = slice_sizes(num_rows, most)
    values = map_slices(function, [cut_into_slices(indices, count, size)], shared)
    return ops.reshape(values, (-1,))[:num_rows]
