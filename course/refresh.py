"""Executes notebooks and stores their outputs: `python course/refresh.py [NOTEBOOK ...]`, all of the course by default.

The stored outputs are compared on every backend (`pytest --nbval course`), so what could differ between runs is refused
or cleared: messages on stderr, tags that mean nothing, and all metadata but tags and what follows from them.

Where pyproject.toml names the address of the repository, as Repository of [project.urls] on GitHub, a notebook gets a
badge that opens it in Colab and a line that installs bertzoo from there; where it names none, neither. The name alone
must never be installed: on the public index it belongs to another project.

bert.py, the learner's file of notebook 19, is written anew too: it is solutions/bert.py without the bodies.
"""

import ast
import os
import re
import sys
import tempfile
import tomllib
from pathlib import Path

TAGS = {"exercise", "solution", "quiz", "hide-input", "nbval-ignore-output"}
HIDDEN = {"solution", "hide-input"}  # cells that are shown folded
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# With PYTEST_CURRENT_TEST, as under nbval, the kernel does not capture what C++ code prints.
ENVIRONMENT = {"KERAS_BACKEND": "jax", "PYTEST_CURRENT_TEST": "refresh", "TF_CPP_MIN_LOG_LEVEL": "3"}
PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
COURSE = Path(__file__).resolve().parent
GIVEN = {"gradient_of"}  # functions of bert.py that are no exercise
COLAB = "https://colab.research.google.com/github/"


def address(pyproject: Path = PYPROJECT) -> str | None:
    """Where the repository is, `https://github.com/OWNER/NAME`; None where the file names no such place."""
    if not pyproject.is_file():
        return None
    urls = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project", {}).get("urls", {})
    match = re.fullmatch(r"(https://github\.com/[^/]+/[^/]+?)(\.git)?/?", urls.get("Repository", ""))
    return match and match[1]


def place(notebook, name: str, repository: str | None) -> None:
    """Puts the badge and the line that installs into a notebook of this file name, or takes them out."""
    first, code = notebook.cells[0], next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source = re.sub(r"\A\[!\[Open in Colab\].*\n+", "", first.source)
    code.source = re.sub(r'if "google\.colab" in sys\.modules:\n +%pip .*\n\n', "", code.source)
    if repository is not None:
        place = f"{COLAB}{repository.removeprefix('https://github.com/')}/blob/main/course/{name}"
        first.source = f"{BADGE}({place})\n\n{first.source}"
        install = f'if "google.colab" in sys.modules:\n    %pip install --quiet git+{repository}\n\n'
        code.source = code.source.replace("import bertzoo as bz", f"{install}import bertzoo as bz", 1)


def stubs(source: str) -> str:
    """A file of functions, each body but those of `GIVEN` replaced by its docstring and NotImplementedError."""
    lines = source.splitlines()
    for function in reversed([node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]):
        if function.name not in GIVEN:
            lines[function.body[0].end_lineno : function.end_lineno] = ["    raise NotImplementedError"]
    return "\n".join(lines) + "\n"


def faults(notebook) -> list[str]:
    """What keeps an executed notebook from being stored, one sentence each."""
    problems = []
    for number, cell in enumerate(notebook.cells):
        unknown = set(cell.metadata.get("tags", [])) - TAGS
        if unknown:
            problems.append(f"cell {number} has the tag {sorted(unknown)[0]!r}; allowed: {', '.join(sorted(TAGS))}.")
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                problems.append(f"cell {number} writes to stderr: {output['text'].strip()[:200]}")
    return problems


def clean(notebook) -> None:
    """Clears all metadata but the tags and the folding that follows from them."""
    notebook.metadata = METADATA
    for cell in notebook.cells:
        tags = sorted(cell.metadata.get("tags", []))
        cell.metadata = {"tags": tags} if tags else {}
        if HIDDEN & set(tags):
            cell.metadata["jupyter"] = {"source_hidden": True}
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output["metadata"] = {}


def write(notebook, path: Path) -> None:
    """Replaces the file in one step."""
    import nbformat

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            nbformat.write(notebook, file)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def refresh(path: Path) -> list[str]:
    """Executes one notebook and stores it, unless it has faults, which are returned.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised; the file is left as it was.
    """
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    place(notebook, path.name, address())
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    problems = faults(notebook)
    if not problems:
        clean(notebook)
        write(notebook, path)
    return problems


def main(arguments: list[str]) -> int:
    """Refreshes the notebooks named, or all of them; returns the exit status."""
    os.environ.update(ENVIRONMENT)
    solution = (COURSE / "solutions/bert.py").read_text(encoding="utf-8")
    (COURSE / "bert.py").write_text(stubs(solution), encoding="utf-8")
    paths = [Path(name) for name in arguments] or sorted(COURSE.glob("[0-9][0-9]_*.ipynb"))
    failed = False
    for path in paths:
        problems = refresh(path.resolve())
        failed = failed or bool(problems)
        print(f"{path.name}: " + ("stored" if not problems else "not stored"), *problems, sep="\n  ")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
