"""What all commands share: `--backend`, `--debug`, and one sentence in place of a traceback."""

import inspect
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from types import ModuleType
from typing import Annotated

import typer

# How commands describe the presets that they take.
PRESET_HELP = "A bundled name, a directory, or hf://owner/name."


class Backend(StrEnum):
    """What Keras may compute with."""

    jax = "jax"
    tensorflow = "tensorflow"
    torch = "torch"


_DEBUG = Annotated[bool, typer.Option("--debug", help="Show tracebacks and what the backend logs.")]
_BACKEND = Annotated[
    Backend | None,
    typer.Option("--backend", help="What to compute with; otherwise KERAS_BACKEND, keras.json, or what is installed."),
]


def plain(function: Callable) -> Callable:
    """A command that needs no Keras: the function with `--debug` and errors as sentences."""
    return _extended(function, {"debug": (_DEBUG, False)})


def with_keras(function: Callable) -> Callable:
    """A command that computes: as `plain`, with `--backend` too. The function calls `start` where it needs Keras."""
    return _extended(function, {"backend": (_BACKEND, None), "debug": (_DEBUG, False)})


def _extended(function: Callable, options: dict[str, tuple]) -> Callable:
    @wraps(function)
    def run(**values):
        own = {name: values.pop(name) for name in options}
        with sentences(own["debug"]):
            if "backend" in own:
                _choose(own["backend"], quiet=not own["debug"])
            function(**values)

    signature = inspect.signature(function)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *extra])
    run.__annotations__ = function.__annotations__ | {parameter.name: parameter.annotation for parameter in extra}
    return run


def _choose(backend: Backend | None, quiet: bool) -> None:
    from bertzoo import backend as backends

    if backend is not None:
        os.environ["KERAS_BACKEND"] = str(backend)
    backends.prepare()
    if quiet:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        warnings.simplefilter("ignore")
        for name in ("absl", "jax", "tensorflow"):
            logging.getLogger(name).setLevel(logging.ERROR)


def start() -> ModuleType:
    """Imports Keras and gives `bertzoo`. TensorFlow logs some lines whatever its log level: they are dropped."""
    import bertzoo
    from bertzoo.backend import skip_graph_rewriting

    original = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        import keras  # noqa: F401
    finally:
        os.dup2(original, 2)
        os.close(original)
        os.close(nowhere)
    skip_graph_rewriting()
    return bertzoo


def prepare_console() -> None:
    """Lets commands print any character: a console that can't show one gets an escape in its place. A closed output
    takes what is printed and drops it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def sentences(debug: bool = False) -> Iterator[None]:
    """Turns errors inside into a sentence on stderr and exit code 1; with `debug` they go through as they are."""
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
