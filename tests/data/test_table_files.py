"""Tables of each kind of file, against what was written into them."""

import gzip
import zlib

import pytest

from bertzoo.data.files import read_string_table

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.csv", 'text,label\n"one, two",x\n"say ""hi""",y\n'),
        ("b.csv", '\ufefftext;label\r\none, two;x\r\n"say ""hi""";y\r\n'),
        ("c.tsv", 'text\tlabel\none, two\tx\n"say ""hi"""\ty\n'),
        ("d.jsonl", '{"text": "one, two", "label": "x"}\n\n{"label": "y", "text": "say \\"hi\\""}\n'),
    ],
)
def test_tables_of_each_kind_read_alike(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode())
    assert read_string_table(tmp_path / name).columns == {"text": ["one, two", 'say "hi"'], "label": ["x", "y"]}


def test_a_tsv_without_quoting_keeps_its_quotation_marks(tmp_path):
    content = 'text\tlabel\n"an open mark\t0\nanother " mark\t1\n'
    (tmp_path / "a.tsv").write_text(content)
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(content.encode()))
    for name in ("a.tsv", "a.tsv.gz"):
        assert read_string_table(tmp_path / name).columns["text"] == ['"an open mark', 'another " mark']


def test_a_packed_tsv_is_split_at_tabs_whatever_its_header_holds(tmp_path):
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"text, or texts, a line\tlabel\none, two\tx\n"))
    assert read_string_table(tmp_path / "a.tsv.gz").columns == {"text, or texts, a line": ["one, two"], "label": ["x"]}


def test_files_that_are_no_whole_gzip_are_named(tmp_path):
    whole = gzip.compress(b"text\tlabel\none, two\tx\n" * 9)
    damaged = whole[:20] + bytes([whole[20] ^ 255]) + whole[21:]
    with pytest.raises(zlib.error):
        gzip.decompress(damaged)
    for content in (b"plain", whole[:5], whole[:30], whole[:-4], damaged):
        (tmp_path / "a.tsv.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.tsv\.gz is not a complete gzip file"):
            read_string_table(tmp_path / "a.tsv.gz")
