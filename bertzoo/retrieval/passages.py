"""Files of text, Markdown, HTML and PDF as passages with their places."""

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

LONGEST = 800  # characters of a passage, about 180 tokens
LARGEST_FILE = 64 * 2**20  # bytes
LARGEST_HTML = 8 * 2**20  # bytes; its parser is slow
_PARAGRAPH_TAGS = frozenset(
    """address article aside blockquote br dd div dl dt figcaption footer form h1 h2 h3 h4 h5 h6 header hr li main nav
    ol p pre section table td th title tr ul""".split()  # noqa: SIM905
)
_HIDDEN_TAGS = frozenset(("script", "style", "template", "noscript"))
_HEADING = re.compile(r"#{1,6} ")


class Passage(NamedTuple):
    """A piece of a file: its text, and where it is, such as "lines 3-8" or "page 2"."""

    text: str
    place: str


class _Line(NamedTuple):
    """A line of text and its number, in the file or on its page. An empty line ends a paragraph."""

    number: int
    text: str


class UnreadableFile(ValueError):
    """A file that can't be read as what its name says."""


def read_passages(path: Path) -> list[Passage]:
    """The passages of a file, in order.

    Raises:
        UnreadableFile: The file is damaged, encrypted, too large, or no text.
        OSError: It can't be opened.
        ImportError: pypdf is missing.
    """
    if path.stat().st_size > LARGEST_FILE:
        raise UnreadableFile(f"larger than {LARGEST_FILE >> 20} MB")
    return list(READERS[path.suffix.lower()](path))


def _read_text(path: Path) -> Iterator[Passage]:
    return _cut([_Line(number, line) for number, line in enumerate(_decode(path).splitlines(), start=1)])


def _read_html(path: Path) -> Iterator[Passage]:
    if path.stat().st_size > LARGEST_HTML:
        raise UnreadableFile(f"HTML larger than {LARGEST_HTML >> 20} MB")
    parser = _TextOfHtml()
    parser.feed(_decode(path))
    parser.close()
    return _cut(parser.read_lines())


def _read_pdf(path: Path) -> Iterator[Passage]:
    try:
        import pypdf
    except ImportError as error:
        raise ImportError(
            f'{error}. PDF files need the extra "search"; in the clone of this project: pip install -e ".[search]"'
        ) from error
    try:
        pages = [page.extract_text() for page in pypdf.PdfReader(path).pages]
    except Exception as error:  # damaged files raise errors of any kind
        raise UnreadableFile(f"no readable PDF: {error}") from error
    for number, text in enumerate(pages, start=1):
        for passage in _cut([_Line(0, line) for line in text.splitlines()]):
            yield Passage(passage.text, f"page {number}")


READERS: dict[str, Callable[[Path], Iterator[Passage]]] = {
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".rst"), _read_text),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _read_html),
    ".pdf": _read_pdf,
}


def _decode(path: Path) -> str:
    content = path.read_bytes()
    for encoding in ("utf-8-sig", "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise UnreadableFile("no text in UTF-8, UTF-16 or Windows-1252")


def _cut(lines: list[_Line]) -> Iterator[Passage]:
    """Whole paragraphs up to `LONGEST` characters together; longer ones are cut at lines, sentences or words. A heading
    begins a passage."""
    taken: list[_Line] = []
    for paragraph in _paragraphs(lines):
        if taken and (_HEADING.match(paragraph[0].text) or _size([*taken, *paragraph]) > LONGEST):
            yield _passage(taken)
            taken = []
        for line in paragraph:
            if taken and _size([*taken, line]) > LONGEST:
                yield _passage(taken)
                taken = []
            taken.append(line)
    if taken:
        yield _passage(taken)


def _size(lines: list[_Line]) -> int:
    return sum(len(line.text) + 1 for line in lines) - 1


def _paragraphs(lines: list[_Line]) -> Iterator[list[_Line]]:
    paragraph: list[_Line] = []
    for line in [*lines, _Line(0, "")]:
        if line.text.strip():
            paragraph += [_Line(line.number, piece) for piece in _split_long(line.text.rstrip())]
        elif paragraph:
            yield paragraph
            paragraph = []


def _split_long(text: str) -> list[str]:
    """A line in pieces of at most `LONGEST` characters, after the end of a sentence if there is one, or a space."""
    pieces, begin = [], 0
    while len(text) - begin > LONGEST:
        window = text[begin : begin + LONGEST]
        ends = [match.end() for match in re.finditer(r"[.!?]\s", window)]
        end = ends[-1] if ends and ends[-1] > LONGEST // 4 else window.rfind(" ") + 1
        end = end if end > 0 else LONGEST
        pieces.append(window[:end].rstrip())
        begin += end
        while begin < len(text) and text[begin].isspace():
            begin += 1
    return [*pieces, text[begin:]] if begin < len(text) else pieces


def _passage(lines: list[_Line]) -> Passage:
    first, last = lines[0].number, lines[-1].number
    place = f"line {first}" if first == last else f"lines {first}-{last}"
    return Passage("\n".join(line.text for line in lines), place)


class _TextOfHtml(HTMLParser):
    """The visible text of a page, in lines with their numbers in the file."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[_Line] = []
        self._number = 0  # of its first line
        self._pieces: list[str] = []  # of the paragraph that is read: its text
        self._hidden = 0

    def read_lines(self) -> list[_Line]:
        """The lines; an empty one after each paragraph."""
        self._end_paragraph()
        return self._lines

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _HIDDEN_TAGS
        if tag in _PARAGRAPH_TAGS:
            self._end_paragraph()

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in _HIDDEN_TAGS))
        if tag in _PARAGRAPH_TAGS:
            self._end_paragraph()

    def handle_data(self, data: str) -> None:
        if self._hidden or not (self._pieces or data.strip()):
            return
        if not self._pieces:
            self._number = self.getpos()[0] + data[: len(data) - len(data.lstrip())].count("\n")
        self._pieces.append(data)

    def _end_paragraph(self) -> None:
        if text := " ".join("".join(self._pieces).split()):
            self._lines += [_Line(self._number, text), _Line(0, "")]
        self._pieces.clear()
