"""docs/guide/from_tf_and_flax.md: every class of transformers 4 has a counterpart, and the example runs."""

import re
import shutil
import tarfile
from pathlib import Path

import pytest
from old_checkpoints import ARCHIVE, unpack

import bertzoo as bz

pytestmark = pytest.mark.once
PAGE = Path(bz.__file__).resolve().parents[1] / "docs" / "guide" / "from_tf_and_flax.md"


def rows(title: str) -> list[list[str]]:
    """The cells of the table below a title."""
    section = PAGE.read_text("utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`(.+?)`", cell)


def test_every_old_class_has_a_counterpart_that_exists():
    with tarfile.open(ARCHIVE) as archive:  # made from all classes that transformers 4 had for the families
        classes = {name.split("/")[0].removesuffix("-sharded") for name in archive.getnames()}
    patterns = {}
    for tensorflow, flax, counterparts in rows("Classes"):
        for name in [*names(tensorflow), *names(flax)]:
            patterns[re.compile(re.escape(name).replace("…", r"[A-Z]\w+?"))] = names(counterparts)
    assert len(classes) == 115
    for name in classes:
        found = [own for pattern, own in patterns.items() if pattern.fullmatch(name)]
        assert len(found) == 1, (name, found)
        assert all(isinstance(getattr(bz, own), type) for own in found[0])


def test_the_families_are_those_of_the_classes():
    text = PAGE.read_text("utf-8")
    listed = re.search(r"of all families: (.+?)\.", text, re.S)[1].replace(" and ", ", ")
    with tarfile.open(ARCHIVE) as archive:
        found = {re.match(r"(TF|Flax)(RoFormer|.+?(?=For|Model))", name)[2] for name in archive.getnames()}
    assert {name.strip() for name in listed.split(",")} == found


def test_the_example(tmp_path, monkeypatch):
    old = unpack(tmp_path / "old")
    shutil.copytree(old / "TFBertForSequenceClassification", tmp_path / "my_tf_model")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "gripping", *map(str, range(12))]
    (tmp_path / "my_tf_model" / "vocab.txt").write_text("\n".join(words) + "\n")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.+?)```", PAGE.read_text("utf-8"), re.S)
    scope: dict = {}
    exec(example, scope)
    assert set(scope["answer"]) == {"label", "score", "scores"} and (tmp_path / "my_model").is_dir()
