"""Where a command may write, asked before the work and not after it."""

import os
from pathlib import Path


def check_preset_directory(directory: Path) -> None:
    """Refuses a directory that a preset should not go into.

    Raises:
        ValueError: It is a file, holds something else than a preset, or can't be made.
    """
    if directory.is_dir():
        if any(directory.iterdir()) and not (directory / "config.json").is_file():
            raise ValueError(f"{directory} is not empty and holds no preset: name another directory.")
    elif directory.exists():
        raise ValueError(f"{directory} is a file: name a directory to save into.")
    _check_writable(directory)


def check_file(path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuses a file that can't be written.

    Raises:
        ValueError: Its name ends otherwise, it is a directory, or its directory is missing or read-only.
    """
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{path} must end in {' or '.join(suffixes)}.")
    if path.is_dir():
        raise ValueError(f"{path} is a directory: name a file.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path} can't be written: there is no directory {path.absolute().parent}.")
    _check_writable(path)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file as a whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _check_writable(path: Path) -> None:
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise ValueError(f"{path} can't be written: {parent} is a file.")
    if not os.access(parent, os.W_OK):
        raise ValueError(f"{path} can't be written: {parent} is read-only for you.")
