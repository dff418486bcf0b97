"""Files become passages that hold all of their text, with the places where it stands."""

import re
import time

import pytest

from bertzoo.retrieval.passages import LONGEST, UnreadableFile, read_passages

pytestmark = pytest.mark.once


def lines_of(place):
    return [int(number) for number in re.findall(r"\d+", place)]


def test_text_is_cut_at_paragraphs_and_the_places_are_its_lines(tmp_path):
    paragraphs = [" ".join(f"word{i}-{j}" for j in range(10 + 7 * i)) for i in range(20)]
    text = "\n\n".join(paragraphs) + "\n"
    (tmp_path / "a.txt").write_text(text)
    passages = read_passages(tmp_path / "a.txt")
    assert "\n".join(passage.text for passage in passages).split() == text.split()
    assert max(len(passage.text) for passage in passages) <= LONGEST
    lines = text.splitlines()
    for passage in passages:
        first, last = (2 * lines_of(passage.place))[:2] if "-" not in passage.place else lines_of(passage.place)
        standing = "\n".join(line for line in lines[first - 1 : last] if line)
        assert passage.text in standing  # a paragraph that is too long is cut within its line


def test_long_lines_are_cut_after_sentences_or_at_spaces(tmp_path):
    sentence = "This sentence is about nothing in particular. "
    for text in (sentence * 60, "word " * 900, "x" * 2000):
        (tmp_path / "a.txt").write_text(text)
        passages = read_passages(tmp_path / "a.txt")
        assert max(len(passage.text) for passage in passages) <= LONGEST
        assert "".join("".join(passage.text for passage in passages).split()) == "".join(text.split())
        assert {passage.place for passage in passages} == {"line 1"}
        if text[0] == "T":
            assert all(passage.text.endswith(".") for passage in passages)


def test_a_heading_begins_a_passage(tmp_path):
    (tmp_path / "a.md").write_text("# One\n\nfirst\n\n## Two\n\nsecond\n")
    assert read_passages(tmp_path / "a.md") == [("# One\nfirst", "lines 1-3"), ("## Two\nsecond", "lines 5-7")]


def test_html_is_its_visible_text(tmp_path):
    page = """<html><head><title>Rings &amp; planets</title><style>p {color: red}</style>
<script>var x = "hidden";</script></head>
<body><h1>Saturn</h1>
<p>Saturn has <b>bright</b> rings,<br>made of <i>ice</i>.</p><ul><li>one</li><li>two</li></ul>
<p>
  Mars</p></body></html>"""
    (tmp_path / "a.html").write_text(page)
    (passage,) = read_passages(tmp_path / "a.html")
    assert passage.text.splitlines() == [
        "Rings & planets", "Saturn", "Saturn has bright rings,", "made of ice.", "one", "two", "Mars"
    ]  # fmt: skip
    assert passage.place == "lines 1-6"


def pdf(*pages):
    """The bytes of a PDF file, written by hand; each page shows lines of text."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for page in pages:
        shown = "T* ".join(f"({line}) Tj " for line in page)
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {shown}ET"
        kids.append(len(objects) + 1)
        contents, font = (
            f"{len(objects) + 2} 0 R",
            "<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>",
        )
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /Resources {font} /MediaBox [0 0 612 792] /Contents {contents} >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects[1] = f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] >>"
    content, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    return (
        f"{content}xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
        f"startxref\n{len(content)}\n%%EOF"
    ).encode()


def test_pdf_gives_pages(tmp_path):
    pytest.importorskip("pypdf")
    (tmp_path / "a.pdf").write_bytes(pdf(["A first page", "of two lines"], ["A second page"]))
    assert read_passages(tmp_path / "a.pdf") == [
        ("A first page\nof two lines", "page 1"),
        ("A second page", "page 2"),
    ]
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.4 broken")
    with pytest.raises(UnreadableFile, match="no readable PDF"):
        read_passages(tmp_path / "b.pdf")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_recognised(tmp_path, encoding):
    (tmp_path / "a.txt").write_bytes("Größe: café".encode(encoding))
    assert read_passages(tmp_path / "a.txt") == [("Größe: café", "line 1")]


def test_files_without_text_give_nothing_or_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("\n \n")
    assert read_passages(tmp_path / "a.txt") == []
    (tmp_path / "b.txt").write_bytes(bytes(range(256)))
    with pytest.raises(UnreadableFile, match="no text"):
        read_passages(tmp_path / "b.txt")


@pytest.mark.parametrize(("name", "unit", "size"), [("a.txt", "x" * 40 + " ", 24), ("a.html", "<i>x</i> ", 6)])
def test_the_time_grows_with_the_size(tmp_path, name, unit, size):
    count = size * 2**20 // len(unit)
    (tmp_path / name).write_text(unit * count)
    begin = time.process_time()
    passages = read_passages(tmp_path / name)
    assert time.process_time() - begin < 20  # minutes where the rest of a text is copied for each piece
    assert sum(passage.text.count("x") for passage in passages) == unit.count("x") * count


def test_large_html_is_left_out_and_spaces_between_tags_stay(tmp_path):
    (tmp_path / "a.html").write_text("<p><b>two</b> <i>words</i></p>one<b>word</b>")
    assert [passage.text for passage in read_passages(tmp_path / "a.html")] == ["two words\noneword"]
    (tmp_path / "a.html").write_text("<p>x</p>" * 2**20 + "<p>more</p>")
    with pytest.raises(UnreadableFile, match="HTML larger than 8 MB"):
        read_passages(tmp_path / "a.html")
