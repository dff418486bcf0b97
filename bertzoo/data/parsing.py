"""One parser for everything that users pass as `x` and `y`: texts, columns, rows, records and tables.

What a task reads is its `Schema` (see `bertzoo.data.schemas`); how it may be passed is the same for all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_MISSING = object()


# ---- tables


def column_names(table: Any) -> list:
    """The names of a table's columns."""
    if isinstance(table, Mapping):
        return list(table)
    names = getattr(table, "column_names", None)
    return list(table.columns if names is None else names)


def find_column(candidates: Sequence[str], available_columns: Sequence) -> Any:
    """The first of some known names that a table has, as the table spells it (capitals do not matter), or None."""
    spelled = {str(name).lower(): name for name in reversed(available_columns)}
    return next((name if name in available_columns else spelled[name] for name in candidates if name in spelled), None)


def require_column(candidates: Sequence[str], available_columns: Sequence) -> Any:
    """As `find_column`, for a column that must exist.

    Raises:
        ValueError: The table has no such column.
    """
    name = find_column(candidates, available_columns)
    if name is None:
        raise ValueError(
            f"the table has the columns {list(available_columns)}; one must be called {', '.join(candidates)}."
        )
    return name


def as_list(column: Any) -> list:
    """The values of a column, array or row."""
    return column.tolist() if hasattr(column, "tolist") else list(column)


def class_label_names(table: Any, column_name: str) -> list[str] | None:
    """The names that `datasets` keeps the indices of in a column (`ClassLabel`), or None."""
    feature = (getattr(table, "features", None) or {}).get(column_name)
    return getattr(getattr(feature, "feature", feature), "names", None)


def label_column_values(table: Any, column_name: str) -> list:
    """The values of a column of labels: of a `ClassLabel` the names, and None for a hidden label, -1."""
    names = class_label_names(table, column_name)
    if not names:
        return as_list(table[column_name])

    def named(value):
        if isinstance(value, (list, tuple)):
            return [named(item) for item in value]
        return names[value] if value is not None and value >= 0 else None

    return [named(value) for value in table[column_name]]


def describe_columns(column_by_role: Mapping[str, Any], all_columns: Sequence) -> str:
    """Writes, for example, "text from column 'review', label from column 'stars'; not used: 'date'"."""
    used = {role: name for role, name in column_by_role.items() if name is not None}
    unused = [str(name) for name in all_columns if name not in used.values()]
    taken = ", ".join(f"{role} from column {str(name)!r}" for role, name in used.items())
    return taken + (f"; not used: {', '.join(map(repr, unused))}" if unused else "")


# ---- what is read


def take_rows(values: Any, row_indices: np.ndarray) -> Any:
    """Some rows of an array, a list or a dict of these; None stays None."""
    if values is None:
        return None
    if isinstance(values, dict):
        return {name: take_rows(column, row_indices) for name, column in values.items()}
    if hasattr(values, "__array__"):
        return np.asarray(values)[row_indices]
    taken = [values[i] for i in row_indices.tolist()]
    return type(values)(taken) if isinstance(values, list) else taken


@dataclass(frozen=True)
class Examples:
    """`n` examples, column by column.

    columns: Role, such as "text", -> n values, validated by the schema.
    targets: Raw targets, or None.
    single: Whether the user passed one example rather than a list.
    description: Which columns of a table were read as what; "" where x was no table.
    """

    columns: dict[str, Any]
    targets: Any = None
    single: bool = False
    description: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, role: str) -> Any:
        return self.columns[role]

    def get(self, role: str) -> Any:
        """A column, or None where there is none."""
        return self.columns.get(role)

    def select(self, row_indices: np.ndarray) -> Examples:
        """The examples of some rows, int (m,)."""
        return dataclasses.replace(
            self, columns=take_rows(self.columns, row_indices), targets=take_rows(self.targets, row_indices)
        )

    def without_targets(self) -> Examples:
        """The same inputs, to predict from."""
        return dataclasses.replace(self, targets=None)

    def unwrap(self, answers: list) -> Any:
        """One answer for a single example, else the list of them."""
        return answers[0] if self.single else answers


class Schema:
    """What a task reads; `bertzoo.data.schemas` has one for each kind of task.

    Args:
        changes: Attributes that differ from those of the class.
    """

    roles: tuple[str, ...]  # names of the columns, in the order in which they are passed without names
    row: str  # one example, written as a row of several values, in words
    least: int = 1  # how many columns there may be
    most: int | None = 1  # no limit where None
    targets: tuple[str, ...] = ("label", "labels", "score", "target")  # names of a table's target column, as tried
    target: str = "label"  # what the target is called in the description of what was read
    named_classes: bool = True  # whether classes are read by name where a table has names for them

    def __init__(self, **changes: Any):
        vars(self).update(changes)

    def find_columns(self, table: Any) -> dict[str, Any]:
        """Role -> name of its column, or None where the table lacks an optional one."""
        raise NotImplementedError

    def normalize_inputs(self, columns_by_role: dict[str, Any], y: Any) -> tuple[dict[str, Any], Any]:
        """Columns by role and raw targets -> the columns and targets of `Examples`."""
        raise NotImplementedError

    def is_single_example(self, value: Any) -> bool:
        """Whether a value is one example, written as a row of several values."""
        raise NotImplementedError


def parse_inputs(x: Any, y: Any = None, *, schema: Schema) -> Examples:
    """Takes apart what a user passes to a task.

    Args:
        x: One example or several: a column of texts (list, tuple, NumPy array, pandas Series), a tuple of columns, a
            list of rows or of records (dicts), or a table (pandas frame, `datasets.Dataset`, dict of columns), whose
            columns are found by their names. `Examples` are returned as they are.
        y: Raw targets; those of the table where None.
        schema: What to read.

    Raises:
        TypeError: A value is of the wrong kind.
        ValueError: Columns differ in length, or a table lacks a column of a known name.
    """
    if isinstance(x, Examples):
        return x if y is None else dataclasses.replace(x, targets=y)
    record = isinstance(x, Mapping) and isinstance(next(iter(x.values()), None), str)
    single = isinstance(x, str) or record or (schema.least > 1 and schema.is_single_example(x))
    x = [x] if single else x
    table, description = _table_of(x), ""
    if table is None:
        columns = _unnamed_columns(x, schema)
        roles = schema.roles if schema.most is not None else (f"{schema.roles[0]} {i + 1}" for i in range(len(columns)))
        named = dict(zip(roles, columns))
    else:
        named, y, description = _named_columns(table, y, schema)
    named, y = schema.normalize_inputs(named, y)
    return Examples(named, y, single, description)


def _table_of(x) -> Any:
    """x where it is a table, the columns of a list of records, or None."""
    if isinstance(x, Mapping) or any(getattr(x, name, None) is not None for name in ("column_names", "columns")):
        return x
    if not isinstance(x, Sequence) or not len(x) or not isinstance(x[0], Mapping):
        return None
    for number, record in enumerate(x):
        if not isinstance(record, Mapping):
            raise TypeError(f"record {number} must be a dict like those before it. Received: {record!r:.60}.")
    names = dict.fromkeys(name for record in x for name in record)
    return {name: [record.get(name, _MISSING) for record in x] for name in names}


def _named_columns(table, y, schema: Schema) -> tuple[dict[str, list], Any, str]:
    """The columns by role, the targets, and which column was read as what."""
    names, roles = column_names(table), schema.find_columns(table)
    columns = {role: as_list(table[name]) for role, name in roles.items() if name is not None}
    read = dict(columns)
    if y is None:
        roles[schema.target] = target = find_column(schema.targets, names)
        if target is not None:
            y = label_column_values(table, target) if schema.named_classes else as_list(table[target])
            read[schema.target] = y
    for role, values in read.items():
        number = next((number for number, value in enumerate(values) if value is _MISSING), None)
        if number is not None:
            raise ValueError(f"record {number} has no {roles[role]!r}, which other records have.")
    return columns, y, describe_columns(roles, names)


def _unnamed_columns(x, schema: Schema) -> list:
    """The columns of rows, of a tuple of columns, or of a single column."""
    if _holds_rows(x, schema):
        for number, row in enumerate(x):
            if not schema.is_single_example(row) or len(row) != len(x[0]):
                raise TypeError(f"x[{number}] must be {schema.row} like the rows before it. Received: {row!r:.60}.")
        return list(zip(*x))
    texts = schema.least == 1 and isinstance(x, tuple) and any(isinstance(part, str) for part in x)
    if isinstance(x, tuple) and not texts and len(x) > 1 and (schema.most is None or len(x) <= schema.most):
        return list(x)
    if schema.least == 1:
        return [x]
    if len(rows := as_list(x)):
        raise TypeError(f"x[0] must be {schema.row}. Received: {rows[0]!r:.60}.")
    return [[] for _ in range(schema.least)]


def _holds_rows(x, schema: Schema) -> bool:
    if not isinstance(x, Sequence) or isinstance(x, str) or not len(x):
        return False
    if not isinstance(x, tuple):
        return schema.is_single_example(x[0])
    # A tuple holds columns, unless all of its parts are tuples of strings.
    rows = all(isinstance(part, tuple) and schema.is_single_example(part) for part in x)
    if rows and schema.most is None and len(x[0]) > len(x):
        raise ValueError("x is a tuple of tuples, which may be rows or columns: pass rows as a list, columns as lists.")
    return rows
