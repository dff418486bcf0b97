"""One number of what a task gives, as a function of a text: what attributions explain."""

from collections.abc import Sequence

import keras
import numpy as np

from bertzoo.analysis.pieces import Pieces, encode_pieces, rows_of
from bertzoo.tasks.task import Task

# Which number of a task's output (batch, …): a class, or (token, class) and the like.
Output = int | Sequence[int]


def inputs_of(task: Task, text) -> tuple[dict[str, np.ndarray], Pieces]:
    """One text, or a pair of them, as a batch of one row and as what a person reads.

    Raises:
        ValueError: The task has no tokenizer.
    """
    first, second = (text, None) if isinstance(text, str) else text
    encoded, pieces = encode_pieces(task, [first], None if second is None else [second])
    ((_, inputs),) = rows_of(encoded, task.pad_id, 1)
    return inputs, pieces[0]


def output_of(task: Task, inputs, output: Output):
    """That number of each row: a tensor (batch,).

    Raises:
        ValueError: The task's output is no tensor, or has no such number.
    """
    place = (output,) if isinstance(output, (int, np.integer)) else tuple(output)
    found = task(inputs)
    shape = getattr(found, "shape", None)
    if shape is None or len(shape) != 1 + len(place) or not all(0 <= i < n for i, n in zip(place, shape[1:])):
        what = "no single tensor" if shape is None else f"of shape (batch, {', '.join(map(str, shape[1:]))})"
        raise ValueError(
            f"output, {output!r}, must name one number of a row of the task's output, counted from 0; what the task "
            f"gives is {what}."
        )
    return found[(slice(None), *place)]


def repeated(inputs: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """The one row of a batch, so many times."""
    return {name: np.repeat(values, rows, axis=0) for name, values in inputs.items()}


def numbers(tensor) -> np.ndarray:
    """A tensor as float64."""
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32")).astype("float64")
