"""Pairs, triplets and longer tuples of texts, each text encoded on its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from bertzoo.tasks.columns import TARGET
from bertzoo.tasks.tables import as_list, column_names, first_of
from bertzoo.text.encoded import Encoded
from bertzoo.text.inputs import as_texts


class TextTuples(NamedTuple):
    """Rows of as many texts each, and raw targets where there are any."""

    rows: list[tuple[str, ...]]
    targets: Any


def read_text_tuples(x, y=None) -> TextTuples:
    """Takes rows of texts apart.

    Args:
        x: One column of texts; a tuple of columns; a list of tuples of texts; or a table (pandas DataFrame,
            `datasets.Dataset`, dict of columns), of which one column may be called label, labels, score or target, and
            all others hold texts, in their order.
        y: Targets; those of the table where None.

    Raises:
        TypeError: A row is no string.
        ValueError: Columns differ in length, or a table has none.
    """
    if isinstance(x, TextTuples):
        return x
    names = column_names(x)
    if names is not None:
        target = first_of(TARGET, names)
        if y is None and target is not None:
            y = np.asarray(x[target])
        columns = [(str(name), as_list(x[name])) for name in names if name not in TARGET]
    elif isinstance(x, tuple) and len(x) > 1 and not any(isinstance(part, str) for part in x):
        columns = [(f"x[{i}]", column) for i, column in enumerate(x)]
    elif isinstance(x, Sequence) and not isinstance(x, str) and len(x) and isinstance(x[0], (tuple, list)):
        columns = [(f"place {i} of the rows", column) for i, column in enumerate(_turned(x))]
    else:
        columns = [("x", x)]
    texts = [as_texts(column, name) for name, column in columns]
    if not texts:
        raise ValueError(f"the table has the columns {names}; at least one must hold texts.")
    if len({len(column) for column in texts}) > 1:
        raise ValueError(f"columns of texts must be equally long; they have {[len(column) for column in texts]} rows.")
    return TextTuples(list(zip(*texts)), y)


def _turned(rows) -> list[tuple]:
    width = len(rows[0])
    for index, row in enumerate(rows):
        if not isinstance(row, (tuple, list)) or len(row) != width:
            raise TypeError(f"x[{index}] must be a tuple of {width} texts like the rows before it; it is {row!r:.60}.")
    return list(zip(*rows))


@dataclass(frozen=True)
class EncodedTuples:
    """Rows of several texts, as `LengthBatches` takes them: what it pads is int32 (rows, columns, length)."""

    columns: Sequence[Encoded]

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n,) int64: tokens of the longest text of each row."""
        return np.max([column.lengths for column in self.columns], axis=0)

    def pad(self, rows, length: int, pad_id: int = 0, lengths: bool = False) -> dict[str, np.ndarray]:
        """`token_ids`, `segment_ids` and `padding_mask`, each int32 (len(rows), columns, length)."""
        parts = [column.pad(rows, length, pad_id, lengths) for column in self.columns]
        return {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]}


def one_by_one(inputs: Mapping) -> dict:
    """The encoder's inputs for tuples of texts, (rows, columns, …), as those of rows * columns single texts."""
    return {name: ops.reshape(x, (-1, *ops.shape(x)[2:])) for name, x in inputs.items()}


def encode_sentence_targets(y, kind: str | None, count: int) -> np.ndarray:
    """Targets of a sentence loss as an array: float32 numbers or vectors, or int32 classes; zeros where it needs none.

    Raises:
        ValueError: There are none, too few or too many, or one is not finite.
    """
    if kind is None:
        if y is not None and len(y) != count:
            raise ValueError(f"x has {count} rows and y has {len(y)}; this loss needs no y.")
        return np.zeros(count, "float32")
    if y is None:
        raise ValueError(f"this loss compares with {kind}: pass y, or a table with a column called label or score.")
    try:
        values = np.asarray(y.tolist() if hasattr(y, "tolist") else y, dtype="float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold {kind}, as many for each row: {error}.") from error
    if values.shape[:1] != (count,):
        raise ValueError(f"x has {count} rows and y has the shape {values.shape}; both must have the same rows.")
    if not np.isfinite(values).all():
        raise ValueError(f"y[{int(np.argwhere(~np.isfinite(values))[0][0])}] is not finite.")
    if kind == "classes" and (values.ndim != 1 or (values % 1).any() or (values < 0).any()):
        raise ValueError("y must hold class numbers from 0 on for this loss.")
    return values.astype("int32") if kind == "classes" else values
