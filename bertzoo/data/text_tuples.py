"""Pairs, triplets and longer tuples of texts, each text encoded on its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from bertzoo.data.columns import PAIRS, TARGET
from bertzoo.data.table_columns import as_list, column_names, find_column
from bertzoo.data.targets import host_rows
from bertzoo.text.encoded import Encoded
from bertzoo.text.inputs import as_texts

# What the text before the positive one is called, and columns that are no texts.
ANCHORS = ("anchor", "query", "question")
IDENTIFIERS = ("id", "idx", "index")


class TextTuples(NamedTuple):
    """Rows of as many texts each, and raw targets where there are any."""

    rows: list[tuple[str, ...]]
    targets: Any


def read_text_tuples(x, y=None) -> TextTuples:
    """Takes rows of texts apart.

    Args:
        x: One column of texts; a tuple of columns; a list of tuples of texts; or a table (pandas DataFrame,
            `datasets.Dataset`, dict of columns), see `find_columns`.
        y: Targets; those of the table where None.

    Raises:
        TypeError: A row is no string.
        ValueError: Columns differ in length, a table has none, or a tuple of tuples may be rows or columns.
    """
    if isinstance(x, TextTuples):
        return x
    names = column_names(x)
    if names is not None:
        columns, target = _from_table(x, names)
        y = target if y is None else y
    elif _are_rows(x):
        columns = [(f"place {i} of the rows", column) for i, column in enumerate(_turned(x))]
    elif isinstance(x, tuple) and len(x) > 1 and not any(isinstance(part, str) for part in x):
        columns = [(f"x[{i}]", column) for i, column in enumerate(x)]
    else:
        columns = [("x", x)]
    texts = [as_texts(column, name) for name, column in columns]
    if not texts:
        raise ValueError(f"the table has the columns {names}; at least one must hold texts.")
    if len({len(column) for column in texts}) > 1:
        raise ValueError(f"columns of texts must be equally long; they have {[len(column) for column in texts]} rows.")
    return TextTuples(list(zip(*texts)), y)


def find_columns(names: list) -> dict[str, str | None]:
    """Which columns of a table are taken, in the order of the loss, and `label` (None where there is none).

    With a column `positive`: the first of anchor, query, question, then positive, then those that begin with negative.
    Two columns that are one of `PAIRS`, in its order. Else all, in the table's order. Columns called id, idx, index are
    never taken.

    Raises:
        ValueError: There is a column positive, and beside it no anchor, or a column of another name.
    """
    label = find_column(TARGET, names)
    texts = [name for name in names if name not in TARGET and str(name).lower() not in IDENTIFIERS]
    if "positive" in texts:
        anchor = find_column(ANCHORS, texts)
        ordered = [anchor, "positive", *(name for name in texts if str(name).startswith("negative"))]
        rest = [name for name in texts if name not in ordered]
        if anchor is None or rest:
            raise ValueError(
                f"beside 'positive', columns must be called {', '.join(ANCHORS)} (one of them) or negative…. Received: "
                f"{names}. Rename or drop the others."
            )
    else:
        ordered = next((list(pair) for pair in PAIRS if set(pair) == set(texts)), texts)
    return {**{f"text {i + 1}": name for i, name in enumerate(ordered)}, "label": label}


def columns_taken(table, names: list) -> dict[str, str | None]:
    """As `find_columns`; columns of numbers are no texts."""
    return find_columns([name for name in names if name in TARGET or _holds_texts(table[name])])


def _from_table(table, names: list) -> tuple[list, Any]:
    *ordered, label = columns_taken(table, names).values()
    target = None if label is None else np.asarray(as_list(table[label]))
    return [(str(name), as_list(table[name])) for name in ordered], target


def _holds_texts(column) -> bool:
    """Whether a column may be one of texts: its first row is no number."""
    first = next(iter(column), None)
    return not isinstance(first, (bool, int, float, np.number))


def _are_rows(x) -> bool:
    """Whether x is a sequence of tuples of texts, row by row, and not a tuple of columns."""
    if not isinstance(x, Sequence) or isinstance(x, str) or not len(x) or not isinstance(x[0], (tuple, list)):
        return False
    if not isinstance(x, tuple):
        return True
    tuples = all(isinstance(part, tuple) and all(isinstance(text, str) for text in part) for part in x)
    if tuples and len(x[0]) > len(x):
        raise ValueError("x is a tuple of tuples, which may be rows or columns: pass rows as a list, columns as lists.")
    return tuples


def _turned(rows) -> list[tuple]:
    width = len(rows[0])
    for index, row in enumerate(rows):
        if not isinstance(row, (tuple, list)) or len(row) != width:
            raise TypeError(f"x[{index}] must be a tuple of {width} texts like the rows before it; it is {row!r:.60}.")
    return list(zip(*rows))


@dataclass(frozen=True)
class EncodedTuples:
    """Rows of several texts, as `BucketedDataset` takes them: what it pads is int32 (rows, columns, length).

    With `present` bool (n, columns), False where a row has no such text, batches have a `choice_mask`."""

    columns: Sequence[Encoded]
    present: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n,) int64: tokens of the longest text of each row."""
        return np.max([column.lengths for column in self.columns], axis=0)

    def pad(self, rows, length: int, pad_id: int = 0, lengths: bool = False) -> dict[str, np.ndarray]:
        """`token_ids`, `segment_ids` and `padding_mask`, each int32 (len(rows), columns, length)."""
        parts = [column.pad(rows, length, pad_id, lengths) for column in self.columns]
        batch = {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]}
        return batch if self.present is None else {**batch, "choice_mask": self.present[rows].astype("int32")}


def repeated_texts(tuples: EncodedTuples) -> np.ndarray | None:
    """int (rows, columns): equal numbers for equal texts, as the encoder reads them; None where all differ."""
    numbers: dict[bytes, int] = {}
    columns = [
        [numbers.setdefault(column.row(i).tobytes(), len(numbers)) for i in range(len(column))]
        for column in tuples.columns
    ]
    rows = np.array(columns).T
    within = sum(len(set(row)) for row in rows.tolist())  # a text may come twice in a row of its own
    return rows if len(numbers) < within else None


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
        values = np.asarray(host_rows(y), dtype="float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold {kind}, as many for each row: {error}.") from error
    if values.shape[:1] != (count,):
        raise ValueError(f"x has {count} rows and y has the shape {values.shape}; both must have the same rows.")
    if not np.isfinite(values).all():
        raise ValueError(f"y[{int(np.argwhere(~np.isfinite(values))[0][0])}] is not finite.")
    if kind == "classes" and (values.ndim != 1 or (values % 1).any() or (values < 0).any()):
        raise ValueError("y must hold class numbers from 0 on for this loss.")
    return values.astype("int32") if kind == "classes" else values
