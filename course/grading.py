"""Runs a learner's answers and prints a verdict for each exercise: `python course/grading.py DIRECTORY {05,all}`.

Each notebook is graded in a process of its own: `python course/grading.py NOTEBOOK`.

An exercise is a cell, or, where check.FILES says so, a part of a file beside the notebook. A cell runs with the
definitions it uses from the cells above it (imports, functions, classes and plain constants), never with what they
compute or train. What it prints is dropped.
"""

import ast
import contextlib
import importlib
import io
import json
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import check

SECONDS = float(os.environ.get("BERTZOO_GRADING_SECONDS", 120))  # for all exercises of a notebook
_PLAIN = (
    ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Name, ast.Load, ast.UnaryOp, ast.unaryop, ast.BinOp,
    ast.operator,
)  # fmt: skip


def verdicts(notebook: Path) -> dict[str, str]:
    """The number of each exercise and what check.py says about the notebook's answer, or its file's."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    numbers = [number for number in check.numbers() if number.startswith(notebook.name[:2])]
    if notebook.name[:2] in check.FILES:
        return _verdicts_of_file(notebook.parent / check.FILES[notebook.name[:2]], numbers)
    return {number: _verdict(number, sources) for number in numbers}


def _verdicts_of_file(path: Path, numbers: list[str]) -> dict[str, str]:
    try:
        module = check.load(path)
    except (Exception, SystemExit) as error:
        return dict.fromkeys(numbers, f"not yet: {path.name} raised {check.raised(error, str(path))}")
    return {number: check.verdict(number, module) for number in numbers}


def _verdict(number: str, sources: list[str]) -> str:
    marked = re.compile(rf"^# Exercise {re.escape(number)}\b", re.M)
    place = next((place for place, source in enumerate(sources) if marked.search(source)), None)
    if place is None:
        return f"not yet: no cell has the line # Exercise {number}"
    name, cell = _function(number, sources), f"exercise {number}"
    namespace = {"np": importlib.import_module("numpy"), "__name__": "exercise"}
    linecache.cache[cell] = len(sources[place]), None, sources[place].splitlines(keepends=True), cell
    above = "\n".join(sources[:place])
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            for statement in needed(sources[place], sources[:place]):
                with contextlib.suppress(Exception):  # what is missing is named where the exercise uses it
                    exec(compile(ast.Module([statement], []), "a cell above", "exec"), namespace)
            exec(compile(_without_magics(sources[place]), cell, "exec"), namespace)
            if name not in namespace:
                return f"not yet: the cell defines no function {name}"
            return _explained(check.verdict(number, namespace[name]), above)
    except (Exception, SystemExit) as error:
        return _explained(f"not yet: the cell raised {check.raised(error, cell)}", above)


def needed(cell: str, above: list[str]) -> list[ast.stmt]:
    """The imports, functions, classes and plain constants of the cells above that a cell uses, in their order."""
    result = [statement for source in above for statement in _statements(source) if _is_definition(statement)]
    try:
        names = _used(ast.parse(_without_magics(cell)))
    except SyntaxError:  # to be said when the cell runs
        return []
    kept = set()
    while True:  # what the kept ones use in their turn
        more = {place for place, statement in enumerate(result) if names & set(_bound(statement))} - kept
        if not more:
            return [result[place] for place in sorted(kept)]
        kept |= more
        names |= set().union(*(_used(result[place]) for place in more))


def _statements(source: str) -> list[ast.stmt]:
    try:
        return ast.parse(_without_magics(source)).body
    except SyntaxError:  # a cell in the making
        return []


def _without_magics(source: str) -> str:
    """IPython's own lines, `%…` and `!…`, are no Python."""
    return re.sub(r"^(\s*)[%!][a-zA-Z].*$", r"\1pass", source, flags=re.M)


def _is_definition(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return statement.value is not None and all(isinstance(node, _PLAIN) for node in ast.walk(statement.value))
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(statement, kinds)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a definition gives a value to."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.split(".")[0]
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
    else:
        yield statement.name


def _used(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _explained(verdict: str, above: str) -> str:
    """With a way out, where a name is missing that a cell above computes."""
    missing = re.search(r"NameError: name '(\w+)' is not defined", verdict)
    if missing and re.search(rf"\b{missing[1]}\b", above):
        verdict += f" (--check computes nothing of the cells above: make {missing[1]} in the exercise's cell)"
    return verdict


def _function(number: str, sources: list[str]) -> str | None:
    """The name that the notebook hands to `check.ex`."""
    calls = (re.search(rf"check\.ex\(\s*[\"']{re.escape(number)}[\"'],\s*(\w+)", source) for source in sources)
    return next((call[1] for call in calls if call), None)


def grade(directory: Path, which: str) -> int:
    """Prints a verdict for each exercise of a notebook, such as 05, or of all; 0 if all have passed, otherwise 1.

    Raises:
        ValueError: There is no such notebook, or it can't be graded.
    """
    notebooks = sorted(directory.glob("[0-9][0-9]_*.ipynb"))
    chosen = [path for path in notebooks if which == "all" or path.name.startswith(f"{which:0>2}_")]
    if not chosen:
        there = ", ".join(path.name[:2] for path in notebooks) or "none; `bertzoo course DIRECTORY` copies them"
        raise ValueError(f"{directory} has no notebook {which!r}; there are: {there}.")
    lines = []
    for path in chosen:
        try:
            result = run_in_process(path)
        except ValueError as error:
            if which != "all":
                raise
            result = [f"{path.name[:2]}: not yet: {error}"]
        print(*result, sep="\n", flush=True)
        lines += result
    passed, undone = (sum(line.endswith(f": {verdict}") for line in lines) for verdict in ("passed", "to do"))
    if which == "all":
        rest = len(lines) - passed - undone
        print(f"{passed} of {len(lines)} exercises passed, {undone} to do, {rest} not yet right.")
    return int(passed < len(lines))


def run_in_process(notebook: Path) -> list[str]:
    """A line for each exercise, from a process of its own: an answer may not terminate, or crash Python."""
    command = [sys.executable, __file__, notebook.resolve()]
    try:
        child = subprocess.run(command, timeout=SECONDS, cwd=notebook.parent, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{notebook}: no verdict within {SECONDS:g} s; is there a loop that never ends?") from None
    if child.returncode:
        last = (child.stderr.strip().splitlines() or [f"exit status {child.returncode}"])[-1]
        raise ValueError(f"{notebook} could not be graded: {last}")
    return child.stdout.splitlines()


def main(arguments: list[str]) -> int | str:
    """Returns the exit status, or an error message."""
    if len(arguments) == 1:
        for number, verdict in verdicts(Path(arguments[0])).items():
            print(f"{number}: {verdict}")
        return 0
    try:
        return grade(Path(arguments[0]), arguments[1])
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
