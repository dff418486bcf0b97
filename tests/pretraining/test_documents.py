"""Documents from all kinds of files."""

import gzip
import json

import pytest

from bertzoo.pretraining.documents import Documents

pytestmark = pytest.mark.once

PLAIN = "\n\na b\n  c  \n\n\nd é\n"
DOCUMENTS = ["a b\nc", "d é"]


def lines(*documents):
    return "".join(json.dumps({"text": text, "id": 3}) + "\n" for text in documents)


def test_plain_text_and_gzip(tmp_path):
    (tmp_path / "a.txt").write_text(PLAIN, encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(PLAIN.encode()))
    (tmp_path / "none.txt").write_text("\n \n")
    read = Documents([tmp_path / "a.txt", str(tmp_path / "none.txt"), tmp_path / "b.txt.gz"])
    assert list(read) == DOCUMENTS * 2
    assert read.position == read.size > 0
    assert list(read) == DOCUMENTS * 2  # again


def test_json_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines(*DOCUMENTS) + "\n" + lines(" "), encoding="utf-8")
    (tmp_path / "b.JSONL.gz").write_bytes(gzip.compress(lines("x").encode()))
    assert list(Documents([tmp_path / "a.jsonl", tmp_path / "b.JSONL.gz"])) == [*DOCUMENTS, "x"]


def test_zstandard(tmp_path):
    (tmp_path / "a.txt.zst").write_bytes(b"")
    try:
        import zstandard
    except ImportError:
        with pytest.raises(ValueError, match="pip install zstandard"):
            list(Documents([tmp_path / "a.txt.zst"]))
        return
    (tmp_path / "a.txt.zst").write_bytes(zstandard.compress(PLAIN.encode()))
    assert list(Documents([tmp_path / "a.txt.zst"])) == DOCUMENTS


def test_a_dataset():
    assert list(Documents([[{"text": "a"}, {"text": "b"}]])) == ["a", "b"]
    datasets = pytest.importorskip("datasets")
    assert list(Documents([datasets.Dataset.from_dict({"text": DOCUMENTS})])) == DOCUMENTS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("latin.txt", "café".encode("latin-1"), r"latin.txt is no UTF-8 text"),
        ("zero.txt", b"ab\0c\n", "zero.txt is no text: it holds zero bytes"),
        ("x.jsonl", b'{"text": "a"}\nplain\n', "line 2: expected a JSON object with a text"),
        ("x.jsonl", b'{"txt": "a"}\n', "line 1: expected a JSON object with a text"),
        ("x.jsonl", b'{"text": 3}\n', "text must be a string"),
        ("x.txt.gz", b"plain", "is no whole gzip file"),
        ("x.txt.gz", gzip.compress(b"a b c" * 100, mtime=0)[:-9], "is no whole gzip file"),
        ("x.txt.gz", gzip.compress(b"a b c", mtime=0)[:10] + b"\xff" * 20, "is no whole gzip file"),
    ],
)
def test_other_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(Documents([tmp_path / name]))


def test_missing_files_are_told_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        Documents([tmp_path / "none.txt"])
