"""The one error of this package: a checkpoint that cannot be found, read or written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, refused, or cannot be written; the message says which file and what to do."""


@contextmanager
def named(source: object) -> Iterator[None]:
    """Puts the name of a file or directory before what a value in it is refused for."""
    try:
        yield
    except ValueError as error:
        if str(source) in str(error) or (isinstance(source, Path) and str(source.parent) in str(error)):
            raise
        raise CheckpointError(f"{source} can't be used: {error}") from error
