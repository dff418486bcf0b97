"""docs/zero_shot_entities.md: its snippets run, one after another, with a bundled encoder in place of a large model."""

import re
from pathlib import Path

import pytest

import bertzoo as bz
from bertzoo.export import OnnxModel

pytestmark = [pytest.mark.once, pytest.mark.slow]
PAGE = Path(bz.__file__).resolve().parents[1] / "docs" / "zero_shot_entities.md"


def test_snippets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    assert len(text.splitlines()) <= 60
    snippets = "\n".join(re.findall(r"```python\n(.+?)```", text, re.S))
    snippets = snippets.replace("hf://urchade/gliner_small-v2.1", "bert_mini_en")
    assert "hf://" not in snippets
    scope: dict = {}
    exec(snippets, scope)
    again = bz.EntityFinder.from_preset("my_finder", verbose=False)
    options = {"labels": ["city", "person"], "threshold": 0.01}
    assert again.tag(scope["texts"], **options) == scope["finder"].tag(scope["texts"], **options)
    assert OnnxModel.from_directory("exported").task == "EntityFinder"
