"""`bertzoo export` in a process of its own, so that the caller's never holds Keras: the command, and what its failure
says."""

import os
import sys

from bertzoo.checkpoints.errors import CheckpointError


def export_command(preset: str, directory: str | os.PathLike, int8: bool) -> list[str]:
    """The command that exports a preset.

    Args:
        preset: The preset.
        directory: Where to.
        int8: Whether to write the model in 8 bits too.
    """
    return [sys.executable, "-m", "bertzoo", "export", preset, os.fspath(directory), *(["--int8"] if int8 else [])]


def export_error(standard_error: str) -> CheckpointError:
    """The error of an export that failed.

    Args:
        standard_error: What it printed.
    """
    lines = standard_error.strip().splitlines() or ["the export failed."]
    return CheckpointError(lines[-1].removeprefix("bertzoo: "))
