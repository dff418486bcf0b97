"""The code of README.md, the pages of docs/, the model cards and docstrings runs, and prints what they say. In pages:

- A block `python` is executed, the blocks of a page in one scope; of a block `bash` the lines that call `bertzoo` are.
- A block `output` is what the block before it prints; `…` stands for any text.
- `<!-- file: NAME -->` before a block makes a file of its content, `<!-- not run: REASON -->` leaves a block out.

Large checkpoints are replaced by models that come with the package.
"""

import doctest
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

import bertzoo as bz
from bertzoo import random
from bertzoo.cli.main import app
from bertzoo.retrieval import folder

pytestmark = [pytest.mark.once, pytest.mark.slow]
ROOT = Path(bz.__file__).resolve().parents[1]
COPIES = {"course", "models", "project"}  # that the build of the site makes
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("weights/**/README.md")),
    *sorted(path for path in ROOT.glob("docs/**/*.md") if path.relative_to(ROOT).parts[1] not in COPIES),
]
FENCE = re.compile(r"(?:<!-- (file|not run): ([^>]+?) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SENTENCE_MODELS = ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-mpnet-base-v2")
BUNDLED = {f"hf://{name}": "sentence_mini_en" for name in SENTENCE_MODELS}
PRESET = re.compile(r"hf://[\w.-]+/[\w.-]+")


@pytest.fixture(autouse=True)
def in_a_folder_and_with_a_seed_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(random, "_seed", None)


class Block(NamedTuple):
    line: int
    kind: str | None  # "file" or "not run"
    note: str | None
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    content = page.read_text("utf-8")
    for match in FENCE.finditer(content):
        kind, note, language, text = match.groups()
        yield Block(content.count("\n", 0, match.start(3)) + 1, kind, note, language, text)


def run_commands(text: str) -> None:
    """The commands of a block, all of which call `bertzoo`."""
    for command in text.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(command, comments=True) or ["bertzoo", "--version"]
        assert program == "bertzoo", f"say why it is not run: {command}"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        print(result.stdout, end="")


def assert_printed(expected: str, printed: str, where: str) -> None:
    def lines(text):
        return [line.rstrip() for line in text.strip().splitlines()]

    pattern = "\n".join(".*?".join(map(re.escape, line.split("…"))) for line in lines(expected))
    assert re.fullmatch(pattern, "\n".join(lines(printed)), re.DOTALL), f"{where} says\n{expected}\nand is\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(folder, "default_directory", lambda *_: tmp_path / "cache")
    scope: dict = {}
    printed = None
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        text = PRESET.sub(lambda match: BUNDLED.get(match[0], "bert_mini_en"), block.text)
        if block.kind == "not run":
            printed = None
        elif block.kind == "file":
            Path(block.note).parent.mkdir(parents=True, exist_ok=True)
            Path(block.note).write_text(text, "utf-8")
        elif block.language == "python":
            exec(compile(text, where, "exec"), scope)
            printed = capsys.readouterr().out
        elif block.language == "bash":
            run_commands(text)
            printed = capsys.readouterr().out
        elif block.language == "output" and printed is not None:
            assert_printed(text, printed, where)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_all_blocks_are_seen(page):
    opening = re.findall(r"^\s*```(.*)$", page.read_text("utf-8"), re.MULTILINE)[::2]
    languages = [language for language in opening if language != "{toctree}"]
    assert languages == [block.language for block in blocks(page)]
    # Code does not hide in other languages, which are not run.
    assert set(languages) <= {"python", "bash", "output", "text", "json", "toml"}


def test_a_wrong_output_is_found():
    assert_printed("loss: …\nend", "loss: 0.25  \nend\n", "here")
    with pytest.raises(AssertionError, match="here says"):
        assert_printed("label: positive", "label: negative", "here")


def examples() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=False)
    modules = [bz, *(value for value in map(bz.__getattr__, bz.__all__) if inspect.ismodule(value))]
    found = {id(value): (name, value) for module in modules for name, value in public_values(module)}
    for name, value in found.values():
        yield from (test for test in finder.find(value, name, globs={"bz": bz, "np": np}) if test.examples)


def public_values(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_the_examples_of_docstrings(example):
    report: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(example, out=report.append)
    assert not report, "".join(report)
