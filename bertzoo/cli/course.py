"""`bertzoo course`: the list of notebooks, a copy to work in, and its grades."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Annotated

import typer

from bertzoo.checkpoints.files import bundled_directory


def course(
    directory: Annotated[
        Path | None, typer.Argument(help="Where to copy to, made if need be; with --check, the copy to grade.")
    ] = None,
    check: Annotated[
        str | None, typer.Option(help="Grade the exercises of a notebook, such as 05, or of all, in DIRECTORY or here.")
    ] = None,
) -> None:
    """List the course's notebooks, copy them into a directory (no file there is overwritten), or grade such a copy."""
    if check is not None:
        _grade(directory or Path(), check)
    elif directory is None:
        _list()
    else:
        _copy(directory)


def _list() -> None:
    root = bundled_directory("course")
    for path in _notebooks(root):
        print(_title(path))
    print(f"\nStart page: {root / 'README.md'}\nTo work in a copy: bertzoo course DIRECTORY")


def _title(path: Path) -> str:
    """The first heading of a notebook, such as "01 · Why bidirectional"."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = (line for cell in cells for line in "".join(cell["source"]).splitlines())
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), path.stem)


def _copy(directory: Path) -> None:
    root = bundled_directory("course")
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    files = [name for name in files if not any(part.startswith(".") or part == "__pycache__" for part in name.parts)]
    if not files:
        raise ValueError(f"this installation has no course: {root} holds no files.")
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file: name a directory.")
    there = [str(name) for name in files if (directory / name).exists()]
    if there:
        more = " …" if len(there) > 3 else ""
        raise ValueError(f"{directory} has {', '.join(there[:3])}{more} already: name another directory.")
    for name in files:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, directory / name)
    print(f"{len(files)} files in {directory}. Begin: jupyter lab {directory}")


def _grade(directory: Path, which: str) -> None:
    """Prints a line for each exercise, by the course's grading.py, and exits with 1 unless all have passed."""
    # First in the path: this bertzoo, whatever is installed.
    path = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(bundled_directory("course") / "grading.py"), str(directory), which]
    environment = os.environ | {"PYTHONPATH": path}
    with subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None  # they are pipes
        for line in child.stdout:
            print(line, end="", flush=True)
        errors = child.stderr.read().strip().splitlines()
    if errors:
        raise ValueError(errors[-1])
    if child.returncode:
        raise typer.Exit(1)


def _notebooks(directory: Path) -> list[Path]:
    return sorted(directory.glob("[0-9][0-9]_*.ipynb"))
