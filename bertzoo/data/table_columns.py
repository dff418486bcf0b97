"""Tables of any library, such as pandas frames and `datasets.Dataset`, and dicts of columns."""

from collections.abc import Mapping, Sequence


def column_names(x) -> list | None:
    """The names of a table's columns; None where x is no table."""
    if isinstance(x, Mapping):
        return list(x)
    names = getattr(x, "column_names", None)
    names = getattr(x, "columns", None) if names is None else names
    return None if names is None else list(names)


def find_column(known: Sequence[str], names: list) -> str | None:
    """The first known name that is among the table's; None where there is none."""
    return next((name for name in known if name in names), None)


def require_column(known: Sequence[str], names: list) -> str:
    """As `find_column`, of a column that must be there.

    Raises:
        ValueError: The table has no such column.
    """
    name = find_column(known, names)
    if name is None:
        raise ValueError(f"the table has the columns {names}; one must be called {', '.join(known)}.")
    return name


def as_list(column) -> list:
    """The rows of a column."""
    return column.tolist() if hasattr(column, "tolist") else list(column)


def label_column(table, name: str) -> list:
    """The rows of a column of labels. Where `datasets` keeps indices into names (`ClassLabel`), the names; None where
    a label is hidden, -1."""
    rows = as_list(table[name])
    feature = (getattr(table, "features", None) or {}).get(name)
    names = getattr(getattr(feature, "feature", feature), "names", None)
    if not names:
        return rows

    def named(value):
        if isinstance(value, (list, tuple)):
            return [named(item) for item in value]
        return names[value] if value is not None and value >= 0 else None

    return [named(value) for value in rows]


def describe_columns(roles: dict[str, str | None], names: list) -> str:
    """ "text from column 'review', label from column 'stars'; not used: 'date'"."""
    used = {role: name for role, name in roles.items() if name is not None}
    unused = [str(name) for name in names if name not in used.values()]
    taken = ", ".join(f"{role} from column {str(name)!r}" for role, name in used.items())
    return taken + (f"; not used: {', '.join(map(repr, unused))}" if unused else "")
