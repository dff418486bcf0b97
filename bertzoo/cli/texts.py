"""The texts that a command is given: as arguments, in a file, or on standard input."""

from pathlib import Path

from bertzoo.cli.dataset import Examples, find_columns, take_examples
from bertzoo.data.table_files import read_rows

TEXTS_HELP = "Texts; - reads them from standard input, a line each."


def given_texts(texts: list[str], file: Path | None, text: str | None = None, pair: str | None = None) -> Examples:
    """Texts from the command line or from a file (`-` as only text or as file: standard input, a text a line).

    Args:
        texts: The arguments.
        file: The file; exactly one of both is given.
        text, pair: The file's columns; guessed by name where None.

    Raises:
        ValueError: None or both are given, the file can't be used, or it has rows without text.
    """
    if bool(texts) == (file is not None):
        raise ValueError("give texts, or a file of texts with --file: one of both.")
    if texts and texts != ["-"]:
        return Examples(texts, None, None)
    rows = read_rows(file or Path("-"))
    examples, left_out = take_examples(rows, find_columns(rows, text, pair, None, needs_label=False))
    if left_out:
        raise ValueError(f"{rows.source}: {left_out} of {len(rows)} rows have no text; fill them or take them out.")
    return examples
