"""Text files of all kinds: tables, and documents to pre-train on; plain or compressed."""

import csv
import gzip
import io
import json
import lzma
import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from bertzoo.data.schemas import TARGET_COLUMNS

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
PLAIN = (".txt", ".text", ".md", ".log", "")
COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}
LARGE = 1_000_000  # characters of a document that causes a warning


def _split_suffix(path: Path) -> tuple[str, str]:
    """The suffix of a file's format, and that of its compression or ""."""
    suffix = path.suffix.lower()
    return (Path(path.stem).suffix.lower(), suffix) if suffix in COMPRESSIONS else (suffix, "")


def format_suffix(path: Path) -> str:
    """The suffix of a file's format, without that of its compression."""
    return _split_suffix(path)[0]


# ---- text


@contextmanager
def _open_text(path: Path, raw: BinaryIO | None = None) -> Iterator[TextIO]:
    """Opens a UTF-8 file, decompressed by its suffix.

    Args:
        path: The file.
        raw: The file, where it is open already; its position is then that in the compressed file.

    Raises:
        ValueError: While reading: it is not UTF-8 text, not a complete compressed file, or needs a package that is not
            installed.
    """
    compression = _split_suffix(path)[1]
    with raw or open(path, "rb") as raw:
        try:
            yield io.TextIOWrapper(_decompressed(path, raw, compression), encoding="utf-8-sig", newline=None)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is not UTF-8 text: byte 0x{error.object[error.start]:02x} after "
                f"{error.object[max(0, error.start - 20) : error.start]!r}. Save it as UTF-8 (in a spreadsheet: CSV "
                "UTF-8)."
            ) from None
        except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
            raise ValueError(f"{path} is not a complete {COMPRESSIONS[compression]} file: {error}.") from None


def _decompressed(path: Path, raw: BinaryIO, compression: str) -> Any:
    if compression == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if compression == ".xz":
        return lzma.LZMAFile(raw)
    if compression == ".zst":
        try:
            import zstandard
        except ImportError:
            raise ValueError(f"{path} is compressed with Zstandard: pip install zstandard to read it.") from None
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
    return raw


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, see `_open_text`."""
    with _open_text(path) as file:
        return file.read()


# ---- rows


def _iterate_rows(
    path: Path, raw: BinaryIO | None = None, quoted: bool = True, column: str | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a file of `TABLES`, as dicts.

    Args:
        path: The file.
        raw: As for `_open_text`.
        quoted: Whether cells of a .csv or .tsv file may be quoted.
        column: The only column that is needed, which saves time with Parquet.

    Raises:
        ValueError: The file is malformed, or needs a package that is not installed.
    """
    kind = format_suffix(path)
    if kind == ".parquet":
        yield from _parquet_rows(path, raw, column)
        return
    with _open_text(path, raw) as lines:
        yield from _json_rows(path, lines) if "json" in kind else _separated_rows(path, lines, quoted)


def _parquet_rows(path: Path, raw: BinaryIO | None, column: str | None) -> Iterator[dict[str, Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise ValueError(f"{path} needs pyarrow: pip install pyarrow to read it.") from None
    try:
        file = parquet.ParquetFile(raw or path)
        columns = [column] if column in file.schema_arrow.names else None
        for batch in file.iter_batches(batch_size=1000, columns=columns):
            yield from batch.to_pylist()
    except ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet file: {error}.") from error


def _json_rows(path: Path, lines: TextIO) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected a JSON object. Received: {line.strip()!r:.60}.")
        yield row


def _separated_rows(path: Path, lines: TextIO, quoted: bool) -> Iterator[dict[str, str]]:
    csv.field_size_limit(2**31 - 1)
    header = lines.readline()
    reader = csv.reader(
        chain([header], lines),
        delimiter="\t" if format_suffix(path) == ".tsv" else max(",;\t", key=header.count),
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        strict=True,
    )
    try:
        names = [name.strip() for name in next(reader, [])]
        if len(set(names)) < len(names):
            raise ValueError(f"{path} has two columns with the same name: {', '.join(names)}.")
        for row in reader:
            if row and len(row) != len(names):
                raise ValueError(f"{path}, line {reader.line_num}: {len(row)} cells; the header has {len(names)}.")
            if row:
                yield dict(zip(names, row))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None


# ---- tables


@dataclass(frozen=True)
class StringTable:
    """Columns of strings by name, of equal length; "" for empty and missing cells."""

    source: str
    columns: dict[str, list[str]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def read_string_table(path: Path, quoted: bool = True) -> StringTable:
    """Reads a table: .csv (separated by comma, semicolon or tab), .tsv, .jsonl (an object per line), .parquet (needs
    pyarrow) or .txt (a text per line, as the column `text`), also compressed; `-` reads a text per line from standard
    input. All are UTF-8.

    Args:
        path: The file.
        quoted: Whether cells may be quoted. Many published .tsv files, such as GLUE's, do not quote, and their texts
            contain quotation marks: a .tsv file that can't be read with quoting is read without.

    Raises:
        ValueError: The file is of another kind, is not UTF-8, has no rows, or a row does not fit the header.
        OSError: It can't be read.
    """
    kind, source = format_suffix(path), str(path)
    if source == "-":
        source = "standard input"
        columns = {"text": _lines(sys.stdin.read().removeprefix("\ufeff"))}
    elif kind == ".txt":
        columns = {"text": _lines(read_text(path))}
    elif kind in TABLES:
        try:
            rows = list(_iterate_rows(path, quoted=quoted))
        except ValueError:
            if kind != ".tsv" or not quoted:
                raise
            return read_string_table(path, quoted=False)
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [_cell(row.get(name)) for row in rows] for name in names}
    else:
        raise ValueError(f"{path} must be a {', '.join(TABLES)} or .txt file.")
    if not any(columns.values()):
        raise ValueError(f"{source} holds no rows.")
    return StringTable(source, columns)


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def load_table(path: str | Path) -> dict[str, list]:
    """A table as a dict of columns, for `fit`; numeric columns of labels and scores become numbers.

    See `read_string_table` for the files; a .tsv is read without quoting, as in GLUE.

    Example:
        >>> with open("films.csv", "w") as file:
        ...     _ = file.write("text,score\\na gripping film,0.9\\ndull,0.1\\n")
        >>> bz.data.load_table("films.csv")
        {'text': ['a gripping film', 'dull'], 'score': [0.9, 0.1]}
    """
    path = Path(path)
    columns: dict[str, list] = dict(read_string_table(path, quoted=format_suffix(path) != ".tsv").columns)
    return {name: _numbers(values) if name in TARGET_COLUMNS else values for name, values in columns.items()}


def _numbers(values: list[str]) -> list:
    for kind in (int, float):
        try:
            return [kind(value) for value in values]
        except ValueError:
            pass
    return values


# ---- documents


class Documents:
    """The documents of files or of a `datasets.Dataset`, read again in each iteration.

    Text files (.txt, .text, .md, .log, or no suffix) hold a paragraph per line and a blank line between documents. JSON
    lines (.jsonl, .ndjson) and tables (.csv, .tsv, .parquet) hold a document per row. Files that end in .gz, .xz or
    .zst are decompressed.

    Args:
        sources: Paths, or objects that yield mappings.
        text_column: The column of the texts, in files with columns.
        document_per_line: Each line of a text file is a document.

    Raises:
        ValueError: A file is of another kind; or, while reading: it is not UTF-8 text or JSON, has no such column, or
            needs a package that is not installed.
    """

    def __init__(self, sources: Sequence, text_column: str = "text", document_per_line: bool = False):
        self.sources = [Path(source) if isinstance(source, (str, Path)) else source for source in sources]
        self.column, self.lines = text_column, document_per_line
        self.size = sum(source.stat().st_size for source in self.sources if isinstance(source, Path))
        # Bytes read so far, before decompression.
        self.position = 0
        for source in self.sources:
            if isinstance(source, Path):
                _check_kind(source)

    def __iter__(self) -> Iterator[str]:
        done = 0
        for source in self.sources:
            if not isinstance(source, Path):
                yield from (row[self.column] for row in source)
                continue
            with open(source, "rb") as raw:
                for document in self._read(source, raw):
                    if "\0" in document:
                        raise ValueError(f"{source} must be a text file. Received: a file with zero bytes.")
                    self.position = done + raw.tell()
                    yield document
            done += source.stat().st_size
            self.position = done

    def _read(self, path: Path, raw: BinaryIO) -> Iterator[str]:
        if format_suffix(path) in TABLES:
            yield from self._cells(path, raw)
            return
        with _open_text(path, raw) as lines:
            stripped = (line.strip() for line in lines)
            yield from filter(None, stripped) if self.lines else _paragraphs(path, stripped)

    def _cells(self, path: Path, raw: BinaryIO) -> Iterator[str]:
        for number, row in enumerate(_iterate_rows(path, raw, column=self.column), start=1):
            if self.column not in row:
                raise ValueError(
                    f"{path} has no column {self.column!r}; it has {', '.join(row)}: name the column of the texts with "
                    f"--column. (row {number})"
                )
            text = row[self.column]
            if text is not None and not isinstance(text, str):
                raise ValueError(f"{path}, row {number}: {self.column} must be a string. Received: {text!r:.40}.")
            if text and text.strip():
                yield text


def _check_kind(path: Path) -> None:
    kind, compression = _split_suffix(path)
    if kind not in (*PLAIN, *TABLES) or (kind == ".parquet" and compression):
        raise ValueError(
            f"{path}: the files known are {', '.join(filter(None, (*PLAIN, *TABLES)))} (all but Parquet also with "
            f"{', '.join(COMPRESSIONS)}). Received: {kind}{compression}. If it is plain text, name it .txt; a JSON "
            "array must become JSON lines (.jsonl)."
        )


def _paragraphs(path: Path, lines: Iterator[str]) -> Iterator[str]:
    """Documents of lines that are separated by blank ones."""
    document: list[str] = []
    for line in chain(lines, [""]):
        if line:
            document.append(line)
        elif document:
            text = "\n".join(document)
            if len(text) > LARGE:
                warnings.warn(
                    f"{path} has a document of {len(text):,} characters in {len(document):,} lines: a blank line ends "
                    "a document. If each line is one, pass document_per_line=True (--lines).",
                    stacklevel=2,
                )
            yield text
            document = []
