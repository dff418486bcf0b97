"""Tables of each kind of file, against what was written into them."""

import pytest

from bertzoo.data.tables import read_rows

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
    assert read_rows(tmp_path / name).columns == {"text": ["one, two", 'say "hi"'], "label": ["x", "y"]}


def test_a_tsv_without_quoting_keeps_its_quotation_marks(tmp_path):
    (tmp_path / "a.tsv").write_text('text\tlabel\n"an open mark\t0\nanother " mark\t1\n')
    assert read_rows(tmp_path / "a.tsv").columns["text"] == ['"an open mark', 'another " mark']
