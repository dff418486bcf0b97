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
    """(rows, …) -> (count, size, …), filled up at the end with the first rows, which are valid ones: the attention of
    rows of zeros may be NaN, and so would be the gradient."""
    shape = ops.shape(x)
    return ops.reshape(ops.concatenate([x, x[: count * size - shape[0]]]), (count, size, *shape[1:]))


def map_slices(function: Callable[..., Tensor], slices: Sequence[Tensor], shared: Sequence[Tensor] = ()) -> Tensor:
    """The function of each slice, one after another, stacked.

    What is inside the function is computed anew in the backward pass, slice by slice, instead of stored (Gao et al.
    2021, "Scaling deep contrastive learning batch size under memory limited setup", section 3).

    Args:
        function: Called as `function(*slice, *shared)`.
        slices: Arrays (count, size, …), which get no gradient.
        shared: Further tensors for each call. On TensorFlow these and variables alone get gradients, not tensors in a
            closure.

    Returns:
        (count, …).
    """
    if keras.backend.backend() == "tensorflow":
        return _map_slices_tensorflow(function, list(slices), list(shared))
    recomputed = keras.remat(function)
    return ops.map(lambda one: recomputed(*one, *shared), list(slices))


def _map_slices_tensorflow(function: Callable[..., Tensor], slices: list, shared: list) -> Tensor:
    """`map_slices`, with the loop of the backward pass written out: TensorFlow's recomputation gives no gradient to
    variables that are read within a loop, and outside of one it would compute all slices at once."""
    import tensorflow as tf

    @tf.custom_gradient
    def mapped(*shared):
        outputs = ops.map(lambda one: function(*one, *shared), slices)

        def gradient(upstream, variables=None):
            variables = list(variables or ())
            watched = [x for x in shared if x.dtype.is_floating]

            def add_slice(index, *totals):
                with tf.GradientTape() as tape:
                    tape.watch(watched)
                    output = function(*(x[index] for x in slices), *shared)
                zero = tf.UnconnectedGradients.ZERO
                gradients = tape.gradient(output, watched + variables, upstream[index], unconnected_gradients=zero)
                return index + 1, *(total + gradient for total, gradient in zip(totals, gradients))

            zeros = [tf.zeros_like(x) for x in watched + variables]
            count = tf.shape(slices[0])[0]
            # Not two slices at once, which would take the memory of both.
            _, *totals = tf.while_loop(lambda i, *_: i < count, add_slice, (0, *zeros), parallel_iterations=1)
            of_watched = iter(totals)
            of_shared = [next(of_watched) if x.dtype.is_floating else None for x in shared]
            return of_shared, list(of_watched)

        return outputs, gradient

    return mapped(*map(ops.convert_to_tensor, shared))


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
