"""What a caller passes as `x` and `y` becomes two text columns and a target column."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bertzoo.data.table_columns import as_list, column_names, find_column, label_column, require_column
from bertzoo.text.inputs import as_pairs

# Column names of GLUE-style and common tables, in the order in which they are tried.
FIRST = ("text", "sentence", "sentence1", "premise", "question1", "question", "review", "content")
# Columns that are read together, as pairs.
PAIRS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "context"),
)
TARGET = ("label", "labels", "score", "target")


class Columns(NamedTuple):
    """Texts, their partners where the inputs are pairs, and raw targets where there are any."""

    texts: list[str]
    pairs: list[str] | None
    targets: Any


def read_columns(x, y=None) -> Columns:
    """Takes texts apart.

    Args:
        x: A string; a list, array or Series of strings; a tuple of two such columns, or a list of (first, second)
            tuples, for pairs; or a table (pandas DataFrame, `datasets.Dataset`, dict of columns), of which
            `find_columns` takes some by their names.
        y: Targets; those of the table where None.

    Raises:
        TypeError: A row is no string.
        ValueError: Columns differ in length, or a table has no text column of a known name.
    """
    if isinstance(x, Columns):
        return x
    names = column_names(x)
    if names is not None:
        return _from_table(x, names, y)
    # A tuple of pairs holds rows, as a list of pairs does.
    if isinstance(x, tuple) and len(x) == 2 and not any(isinstance(part, str) or _is_row(part) for part in x):
        return Columns(*as_pairs(*x), y)
    if isinstance(x, Sequence) and not isinstance(x, str) and len(x) and _is_pair(x[0]):
        for index, row in enumerate(x):
            if not _is_pair(row):
                raise TypeError(f"x[{index}] must be a pair of strings like the rows before it; it is {row!r:.60}.")
        return Columns(*as_pairs([row[0] for row in x], [row[1] for row in x]), y)
    return Columns(*as_pairs(x, None), y)


def find_columns(names: list) -> dict[str, str | None]:
    """Which columns of a table are taken: `text`, `second text` and `label`, None where there is none.

    A second text is taken only where exactly one pair of `PAIRS` is there, and no column `text` besides.

    Raises:
        ValueError: No column has a known name, or more than one pair is there.
    """
    pairs = [pair for pair in PAIRS if set(pair) <= set(names)]
    if len(pairs) > 1 and "text" not in names:
        raise ValueError(
            f"the table has the columns {names}, which may be the pairs {' or '.join(map(str, pairs))}: pass the one "
            f"to use as x=(table[{pairs[0][0]!r}], table[{pairs[0][1]!r}]), with y; on the command line, --text and "
            "--pair."
        )
    first, second = require_column(FIRST, names), None
    if len(pairs) == 1 and ("text" not in names or pairs[0][0] == "text"):
        first, second = pairs[0]
    return {"text": first, "second text": second, "label": find_column(TARGET, names)}


def _is_row(part) -> bool:
    return isinstance(part, tuple) and _is_pair(part)


def _is_pair(row) -> bool:
    return isinstance(row, (tuple, list)) and len(row) == 2 and all(isinstance(part, str) for part in row)


def _from_table(table, names: list, y) -> Columns:
    first, second, target = find_columns(names).values()
    if y is None and target is not None:
        y = label_column(table, target)
    return Columns(*as_pairs(as_list(table[first]), None if second is None else as_list(table[second])), y)
