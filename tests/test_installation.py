"""What a reader is told to install: this project from a clone, or others' packages, never a stranger's of our name."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
ROOT = Path(__file__).resolve().parents[1]
NAME = "bertzoo"
COMMAND = re.compile(
    r"\b(?:pip3?|pipx|uv|poetry|conda|mamba) (?:tool |pip )?(?:install|add|run|download)\b((?:(?!\. [A-Z])[^\n;&|])*)"
)
TEXTS = {".md", ".py", ".ipynb", ".toml", ".cfg", ".txt", ".yml", ".yaml", ".json"}


def installs_the_name(text: str) -> list[str]:
    """The commands in a text that take a distribution of this name from an index."""
    wanted = re.compile(rf"{NAME}(\[.*\])?([=<>~!].*)?[.,:)]*")
    return [
        command[0]
        for command in COMMAND.finditer(text.replace("\\n", "\n"))
        if any(wanted.fullmatch(word) for word in re.split(r"[\s\"'`\\]+", command[1]))
    ]


def literals(source: str) -> str:
    """The strings of a program, each in one piece."""
    return "\n".join(
        "".join(str(getattr(part, "value", "")) for part in getattr(node, "values", [node]))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    )


def texts():
    """Every text of the project: what tests, tools and editors make is in folders that are not its own."""
    for part in ("", "bertzoo", "course", "docs", "tests", "weights"):
        for path in (ROOT / part).glob("*" if part == "" else "**/*"):
            if path.is_file() and path.suffix in TEXTS and "__pycache__" not in path.parts:
                yield path


@pytest.mark.parametrize(
    "command",
    [
        f"%pip install --quiet {NAME}",
        f"pip install '{NAME}[torch]'.",
        f"needs `pip install {NAME}[datasets]`.",
        f"pip3 install -U {NAME}==0.1.0",
        f"uv add {NAME}",
        f"    %pip install --quiet {NAME}\\n",
    ],
)
def test_commands_that_take_the_name_from_an_index_are_found(command):
    assert installs_the_name(command)


@pytest.mark.parametrize(
    "command", ['pip install -e ".[jax,course]"', "pip install torch", f"pip install . && {NAME} quickstart"]
)
def test_others_are_not(command):
    assert not installs_the_name(command)


@pytest.mark.slow
def test_no_text_installs_a_strangers_package_of_this_name():
    seen, result = 0, {}
    for path in texts():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            text += "\n" + literals(text)
        seen += 1
        if commands := installs_the_name(text):
            result[str(path.relative_to(ROOT))] = commands
    assert seen > 300 and not result


def test_readers_are_told_why():
    for path in (ROOT / "README.md", ROOT / "course" / "README.md"):
        assert f"another project has the name `{NAME}`" in path.read_text(encoding="utf-8")
