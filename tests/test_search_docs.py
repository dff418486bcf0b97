"""docs/search.md and docs/retrieval.md: their snippets run, one after another, with bundled models in place of large
ones."""

import re
from pathlib import Path

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.retrieval import folder

pytestmark = [pytest.mark.once, pytest.mark.slow]
PAGES = Path(bz.__file__).resolve().parents[1] / "docs"
BUNDLED = {
    "hf://naver/splade-cocondenser-ensembledistil": "bert_mini_en",
    "hf://colbert-ir/colbertv2.0": "bert_mini_en",
}


def run(page: str, scope: dict) -> None:
    """Executes the Python snippets of a page in one scope."""
    snippets = "\n".join(re.findall(r"```python\n(.+?)```", (PAGES / page).read_text("utf-8"), re.S))
    for name, bundled in BUNDLED.items():
        snippets = snippets.replace(name, bundled)
    assert "hf://" not in snippets
    exec(snippets, scope)


def test_search(tmp_path, monkeypatch, capsys):
    pytest.importorskip("platformdirs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folder, "default_directory", lambda *_: tmp_path / "cache")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "web.txt").write_text("To renew a certificate, run the script.")
    scope: dict = {}
    run("search.md", scope)
    printed = capsys.readouterr().out
    assert "web.txt line 1 To renew a certificate, run the script." in printed and "paris " in printed
    assert len(scope["index"]) == 2 and scope["vectors"].shape == (2, 256)


def test_retrieval():
    scope: dict = {}
    run("retrieval.md", scope)
    assert scope["encoder"].similarity(scope["queries"], scope["documents"]).shape == (2, 2)
    np.testing.assert_allclose(scope["idf"].weight, scope["weights"], rtol=1e-6)
