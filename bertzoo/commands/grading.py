"""A program of its own, which runs a learner's code: `python -m bertzoo.commands.grading CHECK.PY NOTEBOOK`.

Prints one line for each exercise of the notebook. Only the exercise cells run, each by itself and given NumPy as `np`;
what they print is dropped.
"""

import contextlib
import importlib.util
import io
import json
import re
import sys
from pathlib import Path


def verdicts(check, notebook: Path) -> dict[str, str]:
    """Number of each exercise -> what `check`, the course's check.py, says of the notebook's answer."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    numbers = [number for number in check.numbers() if number.startswith(notebook.name[:2])]
    return {number: _verdict(check, number, sources) for number in numbers}


def _verdict(check, number: str, sources: list[str]) -> str:
    cell = next((source for source in sources if re.search(rf"^# Exercise {re.escape(number)}\b", source, re.M)), None)
    if cell is None:
        return f"not yet: no cell has the line # Exercise {number}"
    name = _function(number, sources)
    namespace = {"np": importlib.import_module("numpy"), "__name__": "exercise"}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(cell, f"exercise {number}", "exec"), namespace)
            if name not in namespace:
                return f"not yet: the cell defines no function {name}"
            return check.verdict(number, namespace[name])
    except (Exception, SystemExit) as error:
        return f"not yet: the cell raised {type(error).__name__}: {error}"


def _function(number: str, sources: list[str]) -> str | None:
    """The name that the notebook hands to `check.ex`."""
    calls = (re.search(rf"check\.ex\(\s*[\"']{re.escape(number)}[\"'],\s*(\w+)", source) for source in sources)
    return next((call[1] for call in calls if call), None)


def main(check_file: str, notebook: str) -> None:
    """Prints the verdicts."""
    spec = importlib.util.spec_from_file_location("check", check_file)
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    for number, verdict in verdicts(check, Path(notebook)).items():
        print(f"{number}: {verdict}")


if __name__ == "__main__":
    main(*sys.argv[1:])
