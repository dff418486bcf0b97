"""`bertzoo course`: the list of notebooks, a copy to work in, and its grades."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import bertzoo
from bertzoo.checkpoints.files import bundled_path

SECONDS = 120  # within which all exercises of a notebook are checked


def course(
    directory: Annotated[
        Path | None, typer.Argument(help="Where to copy to, made if need be; with --check, the copy to grade.")
    ] = None,
    check: Annotated[
        str | None, typer.Option(help="Grade the exercises of a notebook, such as 05, or of all, in DIRECTORY or here.")
    ] = None,
) -> None:
    """List the course's notebooks, copy them into a directory (no file there is overwritten), or grade such a copy."""
    if check == "all":
        _grade_all(directory or Path())
    elif check is not None:
        _grade(directory or Path(), check)
    elif directory is None:
        _list()
    else:
        _copy(directory)


def _list() -> None:
    root = bundled_path("course")
    for path in _notebooks(root):
        print(_title(path))
    print(f"\nStart page: {root / 'README.md'}\nTo work in a copy: bertzoo course DIRECTORY")


def _title(path: Path) -> str:
    """The first heading of a notebook, such as "01 · Why bidirectional"."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = (line for cell in cells for line in "".join(cell["source"]).splitlines())
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), path.stem)


def _copy(directory: Path) -> None:
    root = bundled_path("course")
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


def _grade(directory: Path, number: str) -> None:
    """Prints what check.py says of each exercise, and exits with 1 unless all have passed."""
    found = [path for path in _notebooks(directory) if path.name.startswith(f"{number:0>2}_")]
    if not found:
        there = ", ".join(path.name[:2] for path in _notebooks(directory)) or "none"
        raise ValueError(f"{directory} has no notebook {number!r}; there are: {there}. All are checked by `all`.")
    lines = _verdicts(directory, found[0])
    print(*lines, sep="\n")
    if not all(map(_passed, lines)):
        raise typer.Exit(1)


def _grade_all(directory: Path) -> None:
    """As `_grade`, of every notebook that is there, and a summary."""
    found, lines = _notebooks(directory), []
    if not found:
        raise ValueError(f"{directory} has no notebooks; `bertzoo course DIRECTORY` copies them.")
    for path in found:
        try:
            verdicts = _verdicts(directory, path)
        except ValueError as error:  # the others are graded all the same
            verdicts = [f"{path.name[:2]}: not yet: {error}"]
        print(*verdicts, sep="\n", flush=True)
        lines += verdicts
    passed, undone = sum(map(_passed, lines)), sum(line.endswith(": to do") for line in lines)
    print(f"{passed} of {len(lines)} exercises passed, {undone} to do, {len(lines) - passed - undone} not yet right.")
    if passed < len(lines):
        raise typer.Exit(1)


def _passed(line: str) -> bool:
    return line.endswith(": passed")


def _verdicts(directory: Path, notebook: Path) -> list[str]:
    """What check.py says of each exercise of a notebook, a line each.

    The learner's code runs in a process of its own, so that one that never ends or breaks Python is only that.
    """
    # First in the path: this bertzoo, whatever is installed.
    path = os.pathsep.join(filter(None, [str(Path(bertzoo.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, bundled_path("course") / "grading.py", notebook.resolve()]
    options = {"cwd": directory, "env": os.environ | {"PYTHONPATH": path}, "capture_output": True, "text": True}
    try:
        child = subprocess.run(command, timeout=SECONDS, **options)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{notebook}: no verdict within {SECONDS} s; is there a loop that never ends?") from None
    if child.returncode:
        last = (child.stderr.strip().splitlines() or [f"exit status {child.returncode}"])[-1]
        raise ValueError(f"{notebook} could not be graded: {last}")
    return child.stdout.splitlines()


def _notebooks(directory: Path) -> list[Path]:
    return sorted(directory.glob("[0-9][0-9]_*.ipynb"))
