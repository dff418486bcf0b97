"""docs/guide/clean_corpus.py, in an environment with datatrove: DATATROVE_PYTHON is its Python."""

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bertzoo as bz
from bertzoo.cli.main import app
from bertzoo.data import load_reviews

PYTHON = os.environ.get("DATATROVE_PYTHON")
SCRIPT = Path(bz.__file__).resolve().parents[1] / "docs" / "guide" / "clean_corpus.py"
GERMAN = "Der Fluss entspringt in den Alpen und fließt durch mehrere Länder bis zur Nordsee, an der viele leben. "
pytestmark = [pytest.mark.once, pytest.mark.slow, pytest.mark.skipif(not PYTHON, reason="needs DATATROVE_PYTHON")]


@pytest.fixture
def raw(tmp_path):
    """Eight documents to keep, one of them a web page, and one for each kind of rule."""
    folder, texts = tmp_path / "raw", [text.replace(",", "") for text in load_reviews("train")[0]]
    folder.mkdir()
    documents = ["\n".join(texts[i : i + 12]) for i in range(0, 96, 12)]
    paragraphs = "".join(f"<p>{line}</p>" for line in documents[0].split("\n"))
    page = f"<html><body><nav>Home, Contact</nav><article>{paragraphs}</article></body></html>"
    (folder / "page.html").write_text(page, "utf-8")
    numbers = " ".join(f"{word} {number}" for number, word in enumerate(" ".join(texts[96:108]).split()))
    others = [GERMAN * 8, numbers, "\n".join([texts[0]] * 20), documents[1] + "\nthe end ."]
    with gzip.open(folder / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n\n".join(documents[1:5]))
    with open(folder / "b.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in documents[5:] + others)
    return folder


def clean(raw, work) -> dict[str, int]:
    done = subprocess.run([PYTHON, SCRIPT, raw, work], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    return {name: int(number.replace(",", "")) for number, name in rows}


def cleaned_files(work) -> dict[str, bytes]:
    return {path.name: gzip.decompress(path.read_bytes()) for path in sorted(work.glob("clean/*"))}


def test_documents_are_removed_by_the_rule_they_break_and_the_rest_is_prepared(raw, tmp_path):
    counts = clean(raw, tmp_path / "work")
    rules = {name.removeprefix("removed: ").split(",")[0]: n for name, n in counts.items() if name.startswith("rem")}
    assert counts["in"] == 12 and counts["out"] == 8
    assert rules == {"no text in the page": 0, "language": 1, "repetition": 1, "quality": 1, "duplicate": 1}
    files = cleaned_files(tmp_path / "work")
    text = b"".join(files.values()).decode()
    assert text.count("\n") == 8 and "Home" not in text and "Alpen" not in text
    assert clean(raw, tmp_path / "again") == counts and cleaned_files(tmp_path / "again") == files
    paths = [str(path) for path in sorted((tmp_path / "work" / "clean").iterdir())]
    options = ["--vocabulary-size", "300", "--out", str(tmp_path / "corpus")]
    result = CliRunner().invoke(app, ["prepare", *paths, *options])
    assert result.exit_code == 0, result.output
    assert "8 documents" in result.output
