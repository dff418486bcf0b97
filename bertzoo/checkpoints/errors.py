"""The error of this package: a checkpoint that cannot be found, read or written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, refused, or cannot be written; the message says which file and what to do."""


@contextmanager
def add_source_to_errors(source: object) -> Iterator[None]:
    """Names the file or directory in the errors of a block that reads it."""
    try:
        yield
    except ValueError as error:
        if str(source) in str(error) or (isinstance(source, Path) and str(source.parent) in str(error)):
            raise
        raise CheckpointError(f"{source} can't be used: {error}") from error
