"""What commands show: tables and progress bars, on a terminal and in a log."""

import sys
from collections.abc import Iterable, Sequence


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None, numbers: Sequence[str] = ()
) -> None:
    """Prints a table; the columns named in `numbers` are set flush right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 250  # a file or a pipe has no edge to fold at
    # Texts of users are no markup: "[MASK]" would be taken for a style.
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def progress() -> int:
    """Keras's `verbose`: a moving bar on a terminal, a line an epoch elsewhere."""
    return 1 if sys.stdout.isatty() else 2


def percent(share: float) -> str:
    """0.8333 -> "83.3 %"."""
    return f"{100 * share:.1f} %"
