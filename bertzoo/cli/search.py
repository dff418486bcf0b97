"""`bertzoo search`: questions to the files of a folder."""

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bertzoo.cli.app import PRESET_HELP
from bertzoo.retrieval import DEFAULT_PRESET, FolderIndex


def search(
    folder: Annotated[Path, typer.Argument(help="A folder of text, Markdown, HTML and PDF files.")],
    question: Annotated[str, typer.Argument(help="A question, a sentence or words.")],
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="How many passages to show.")] = 5,
    preset: Annotated[str, typer.Option(help=f"The sentence encoder. {PRESET_HELP}")] = DEFAULT_PRESET,
    index: Annotated[Path | None, typer.Option(help="Where to keep the index; the user's cache if left out.")] = None,
) -> None:
    """Find passages in the files of a folder. The first question reads all files; later ones only those that changed.
    Nothing is written into the folder."""
    with _status(f"loading {preset}"):
        files = FolderIndex(folder, preset, index)
    changes = files.find_changes()
    if changes.changed or changes.gone:
        before = files.unreadable
        with _progress(len(changes.changed)) as report:
            files.update(changes, report)
        for name, reason in files.unreadable.items():
            if name not in before or name in changes.changed:
                typer.echo(_printable(f"left out: {name}: {reason}"), err=True)
    if not len(files):
        raise ValueError(f"{folder} must have text, Markdown, HTML or PDF files with text. Received: none.")
    for number, answer in enumerate(files.search(question, top_k), start=1):
        typer.echo(typer.style(_printable(f"{number}. {answer.file}, {answer.place}"), bold=True))
        typer.echo(_indented(_printable(answer.text)) + "\n")


def _printable(text: str) -> str:
    """A text without what would command a terminal (control characters), or has no UTF-8 (surrogates)."""
    return "".join(c for c in text if c in "\t\n" or unicodedata.category(c) not in ("Cc", "Cs"))


def _indented(text: str) -> str:
    width = min(shutil.get_terminal_size().columns, 100) if sys.stdout.isatty() else 10_000
    lines = [textwrap.fill(line, width, initial_indent="   ", subsequent_indent="   ") for line in text.splitlines()]
    return "\n".join(lines)


@contextmanager
def _status(text: str) -> Iterator[None]:
    """A line while something takes its time, on a terminal alone."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text} …")
        sys.stderr.flush()
    try:
        yield
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")


@contextmanager
def _progress(count: int) -> Iterator[Callable[[str], None]]:
    """A progress bar over files, on stderr; none for no files."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), disable=not count) as bar:
        task = bar.add_task("reading files", total=count)
        yield lambda file: bar.update(task, advance=1)
