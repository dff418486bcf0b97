"""Documents from all kinds of files."""

import gzip
import json
import lzma

import pytest

from bertzoo.data import files
from bertzoo.data.files import Documents

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
        ("latin.txt", "café".encode("latin-1"), r"latin.txt is not UTF-8 text"),
        ("zero.txt", b"ab\0c\n", "zero.txt must be a text file"),
        ("x.jsonl", b'{"text": "a"}\nplain\n', "line 2: expected a JSON object. Received: 'plain'"),
        ("x.jsonl", b'{"txt": "a"}\n', "no column 'text'; it has txt: .* --column"),
        ("x.jsonl", b'{"text": 3}\n', "text must be a string"),
        ("x.txt.gz", b"plain", "is not a complete gzip file"),
        ("x.txt.gz", gzip.compress(b"a b c" * 100, mtime=0)[:-9], "is not a complete gzip file"),
        ("x.txt.gz", gzip.compress(b"a b c", mtime=0)[:10] + b"\xff" * 20, "is not a complete gzip file"),
    ],
)
def test_other_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(Documents([tmp_path / name]))


def test_missing_files_are_told_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        Documents([tmp_path / "none.txt"])


def test_tables_of_documents(tmp_path):
    (tmp_path / "a.csv").write_text('id,body\n1,"a b\nc"\n2,\n3,d é\n', encoding="utf-8-sig")
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress("body\tid\na b\t1\nd é\t2\n".encode()))
    assert list(Documents([tmp_path / "a.csv"], text_column="body")) == DOCUMENTS
    assert list(Documents([tmp_path / "a.tsv.gz"], text_column="body")) == ["a b", "d é"]
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"id": [1, 2, 3], "body": [DOCUMENTS[0], None, DOCUMENTS[1]]}).to_parquet(tmp_path / "a.parquet")
    read = Documents([tmp_path / "a.parquet"], text_column="body")
    assert list(read) == DOCUMENTS and read.position == read.size
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(ValueError, match="has no column 'text'; it has id, body: .* --column"):
            list(Documents([tmp_path / name]))


def test_json_lines_with_a_byte_order_mark_and_another_column(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"content": "a b"}\n', encoding="utf-8-sig")
    assert list(Documents([tmp_path / "a.jsonl"], text_column="content")) == ["a b"]
    with pytest.raises(ValueError, match="no column 'text'; it has content"):
        list(Documents([tmp_path / "a.jsonl"]))


def test_xz(tmp_path):
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(PLAIN.encode()))
    assert list(Documents([tmp_path / "a.txt.xz"])) == DOCUMENTS
    (tmp_path / "b.xz").write_bytes(b"plain")
    with pytest.raises(ValueError, match="b.xz is not a complete xz file"):
        list(Documents([tmp_path / "b.xz"]))


def test_lines_may_be_documents_and_one_without_blank_lines_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a b\nc\n\nd\n")
    assert list(Documents([tmp_path / "a.txt"], document_per_line=True)) == ["a b", "c", "d"]
    monkeypatch.setattr(files, "LARGE", 3)
    with pytest.warns(UserWarning, match=r"a document of 5 characters in 2 lines: a blank line ends .*--lines"):
        assert list(Documents([tmp_path / "a.txt"])) == ["a b\nc", "d"]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.html", "a.pdf", "a.docx", "a.parquet.gz", "a.xml.zst"])
def test_files_of_unknown_kinds_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"the files known are .txt.*If it is plain text, name it .txt"):
        Documents([tmp_path / name])
