"""What all commands share: `--backend`, `--debug`, errors as one sentence, tables and progress."""

import inspect
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

import bertzoo
from bertzoo.backend import disable_tensorflow_grappler, prepare_backend

# Options that several commands share.
PRESET_HELP = "A bundled name, a directory, or hf://owner/name."
Preset = Annotated[str, typer.Option(help=f"The model to start from. {PRESET_HELP}")]
TextColumn = Annotated[str | None, typer.Option(help="Column of the texts; found by its name if left out.")]
PairColumn = Annotated[str | None, typer.Option(help="Column of the second texts, for pairs.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column of the labels; found by its name if left out.")]
HeldOut = Annotated[Path | None, typer.Option(help="Held-out rows; a tenth of FILE if left out.")]
TextsFile = Annotated[Path | None, typer.Option(help="Texts in a .csv, .tsv, .jsonl or .txt file.")]
Texts = Annotated[list[str] | None, typer.Argument(help="Texts; - reads them from standard input, a line each.")]
MaxLength = Annotated[int | None, typer.Option(min=3, help="Longest input in tokens; the rest is cut off.")]
PositiveInt = Annotated[int, typer.Option(min=1)]
PartOption = Annotated[str | None, typer.Option("--part", help="Do part I of N only, given as I/N, such as 2/16.")]


class _Backend(StrEnum):
    """The backends of Keras."""

    jax = "jax"
    tensorflow = "tensorflow"
    torch = "torch"


_DEBUG = Annotated[bool, typer.Option("--debug", help="Show tracebacks and the backend's logs.")]
_BACKEND = Annotated[
    _Backend | None,
    typer.Option("--backend", help="Keras's backend; by default KERAS_BACKEND, keras.json, or an installed one."),
]


def with_debug_option(function: Callable) -> Callable:
    """A command that needs no Keras: the function with `--debug` and errors as sentences."""
    return _extended(function, {"debug": (_DEBUG, False)})


def with_backend_and_debug_options(function: Callable) -> Callable:
    """A command that uses Keras, with `--backend` too. The function calls `import_bertzoo` when it needs Keras."""
    return _extended(function, {"backend": (_BACKEND, None), "debug": (_DEBUG, False)})


def _extended(function: Callable, options: dict[str, tuple]) -> Callable:
    @wraps(function)
    def run(**values):
        own = {name: values.pop(name) for name in options}
        with report_errors_and_exit(own["debug"]):
            if "backend" in own:
                _choose(own["backend"], quiet=not own["debug"])
            function(**values)

    signature = inspect.signature(function)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    setattr(run, "__signature__", signature.replace(parameters=[*signature.parameters.values(), *extra]))  # noqa: B010
    run.__annotations__ = function.__annotations__ | {parameter.name: parameter.annotation for parameter in extra}
    return run


def _choose(backend: _Backend | None, quiet: bool) -> None:
    if backend is not None:
        os.environ["KERAS_BACKEND"] = str(backend)
    prepare_backend()
    if quiet:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        warnings.simplefilter("ignore")
        for name in ("absl", "jax", "tensorflow"):
            logging.getLogger(name).setLevel(logging.ERROR)


def import_bertzoo() -> ModuleType:
    """Imports Keras and returns `bertzoo`. Lines that TensorFlow logs at any log level are dropped."""
    original = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        import keras  # noqa: F401
    finally:
        os.dup2(original, 2)
        os.close(original)
        os.close(nowhere)
    disable_tensorflow_grappler()
    return bertzoo


def parse_part(text: str) -> tuple[int, int]:
    """ "2/16" -> (2, 16).

    Raises:
        ValueError: It is not a number from 1 to N, a slash, and N.
    """
    number, _, total = text.partition("/")
    if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise ValueError(f"--part must be I/N with I from 1 to N, such as 2/16. Received: {text!r}.")
    return int(number), int(total)


def escape_unencodable_output() -> None:
    """Lets commands print any character: a console that can't show it gets an escape. A closed output is replaced."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def report_errors_and_exit(debug: bool = False) -> Iterator[None]:
    """Turns errors into a sentence on stderr and exit code 1; with `debug` they are raised."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        _leave("stopped.")
    except Exception as error:
        if debug:
            raise
        _leave(_sentence(error))


def _leave(sentence: str) -> None:
    typer.echo(f"bertzoo: {sentence}", err=True)
    raise typer.Exit(1) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}."
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (ValueError, OSError, ImportError)):
        return text
    return f"unexpected {type(error).__name__}: {text} (run it again with --debug to see where)"


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    numeric_columns: Sequence[str] = (),
) -> None:
    """Prints a table; the columns named in `numeric_columns` are right-aligned."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right" if name in numeric_columns else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 250  # a file or a pipe has no width
    # Texts are not markup: "[MASK]" would be read as a style.
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def training_verbosity() -> int:
    """Keras's `verbose`: a progress bar on a terminal, otherwise a line per epoch."""
    return 1 if sys.stdout.isatty() else 2


def format_percent(fraction: float) -> str:
    """0.8333 -> "83.3 %"."""
    return f"{100 * fraction:.1f} %"
