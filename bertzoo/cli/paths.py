"""Whether a command may write to a path, checked before the work begins."""

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bertzoo.checkpoints.saving import check_writable


def check_preset_output_directory(directory: Path) -> None:
    """Refuses a directory that a preset should not be saved in.

    Raises:
        ValueError: It is a file, holds something other than a preset, or can't be created.
    """
    if directory.is_dir():
        found = {path.name for path in directory.iterdir()} - {"lost+found"}  # of a mounted disk
        if found and "config.json" not in found:
            raise ValueError(f"{directory} is not empty and holds no preset: name another directory.")
    check_writable(directory)


def check_directory_is_new(directory: Path) -> None:
    """Refuses a directory that has contents.

    Raises:
        ValueError: It has.
    """
    if directory.is_dir() and any(directory.iterdir()):
        raise ValueError(f"{directory} exists already: name another directory with --out, or remove it.")


def check_output_file(path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuses a file that can't be written.

    Raises:
        ValueError: Its suffix is wrong, it is a directory, or its directory is missing or read-only.
    """
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{path} must end in {' or '.join(suffixes)}.")
    if path.is_dir():
        raise ValueError(f"{path} is a directory: name a file.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path} can't be written: there is no directory {path.absolute().parent}.")
    _check_writable(path)


def write_atomically(path: Path, content: bytes | Callable[[Path], object]) -> None:
    """Writes a file completely or not at all, unless something is mounted on it.

    Args:
        path: The file.
        content: Its bytes, or a function that writes it at the path that it gets.
    """
    write = content if callable(content) else partial(Path.write_bytes, data=content)
    part = _part(path)
    try:
        write(part)
        part.replace(path)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        write(path)
    finally:
        part.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _check_writable(path: Path) -> None:
    part = _part(path)
    try:
        part.touch()
        part.unlink()
    except OSError as error:
        raise ValueError(f"{path} can't be written: {error.strerror}. Name another file.") from error
