"""Documents from files: plain text, JSON lines, tables, plain or compressed."""

import csv
import gzip
import io
import json
import lzma
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

PLAIN = ("", ".txt", ".text", ".md", ".log")
JSON_LINES = (".jsonl", ".ndjson")
TABLES = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
PACKED = (".gz", ".zst", ".xz")
LARGE = 1_000_000  # characters of a document that causes a warning


class Documents:
    """The documents of files or of a `datasets.Dataset`, read again in each iteration.

    Text files (.txt, .text, .md, .log, or no suffix) hold a paragraph per line and a blank line between documents. JSON
    lines (.jsonl, .ndjson) and tables (.csv, .tsv, .parquet) hold a document per row. Files that end in .gz, .xz or
    .zst are decompressed.

    Args:
        sources: Paths, or objects that yield mappings.
        column: The column of the texts, in files with columns.
        lines: Each line of a text file is a document.

    Raises:
        ValueError: A file is of another kind; or, while reading: it is not UTF-8 text or JSON, has no such column, or
            needs a package that is not installed.
    """

    def __init__(self, sources: Sequence, column: str = "text", lines: bool = False):
        self.sources = [Path(source) if isinstance(source, (str, Path)) else source for source in sources]
        self.column, self.lines = column, lines
        self.size = sum(source.stat().st_size for source in self.sources if isinstance(source, Path))
        # Bytes read so far, before decompression.
        self.position = 0
        for source in self.sources:
            if isinstance(source, Path):
                _kind(source)

    def __iter__(self) -> Iterator[str]:
        done = 0
        for source in self.sources:
            if not isinstance(source, Path):
                yield from (row[self.column] for row in source)
                continue
            with open(source, "rb") as raw:
                for document in self._read(source, raw):
                    self.position = done + raw.tell()
                    yield document
            done += source.stat().st_size
            self.position = done

    def _read(self, path: Path, raw: BinaryIO) -> Iterator[str]:
        kind, packed = _kind(path)
        try:
            if kind == PARQUET:
                rows = _parquet(path, raw, self.column)
            else:
                lines = io.TextIOWrapper(_unpacked(path, packed, raw), encoding="utf-8-sig", newline=None)
                if kind in JSON_LINES:
                    rows = _json_lines(path, lines, self.column)
                elif kind in TABLES:
                    rows = _separated(path, lines, TABLES[kind], self.column)
                elif self.lines:
                    rows = (line.strip() for line in lines if line.strip())
                else:
                    rows = _paragraphs(path, lines)
            for document in rows:
                if "\0" in document:
                    raise ValueError(f"{path} must be a text file. Received: a file with zero bytes.")
                yield document
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: {error}.") from error
        except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
            raise ValueError(
                f"{path} is not a complete {'xz' if packed == '.xz' else 'gzip'} file: {error}."
            ) from error


def _kind(path: Path) -> tuple[str, str]:
    """The suffix of a file's format, and that of its compression or ""."""
    packed = path.suffix.lower() if path.suffix.lower() in PACKED else ""
    kind = Path(path.stem if packed else path.name).suffix.lower()
    known = (*PLAIN, *JSON_LINES, *TABLES, *(() if packed else (PARQUET,)))
    if kind not in known:
        raise ValueError(
            f"{path}: the files known are {', '.join(filter(None, known))} (all but Parquet also with "
            f"{', '.join(PACKED)}). Received: {kind}{packed}. If it is plain text, name it .txt; a JSON array must "
            "become JSON lines (.jsonl)."
        )
    return kind, packed


def _unpacked(path: Path, packed: str, raw: BinaryIO) -> BinaryIO | gzip.GzipFile | lzma.LZMAFile:
    if packed == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if packed == ".xz":
        return lzma.LZMAFile(raw)
    if packed == ".zst":
        try:
            import zstandard
        except ImportError:
            raise ValueError(f"{path} is compressed with Zstandard: pip install zstandard to read it.") from None
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
    return raw


def _paragraphs(path: Path, file: Iterator[str]) -> Iterator[str]:
    lines: list[str] = []
    for line in file:
        if line.strip():
            lines.append(line.strip())
        elif lines:
            yield _document(path, lines)
            lines = []
    if lines:
        yield _document(path, lines)


def _document(path: Path, lines: list[str]) -> str:
    document = "\n".join(lines)
    if len(document) > LARGE:
        warnings.warn(
            f"{path} has a document of {len(document):,} characters in {len(lines):,} lines: a blank line ends a "
            "document. If each line is one, pass lines=True (--lines).",
            stacklevel=2,
        )
    return document


def _json_lines(path: Path, file: Iterator[str], column: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected a JSON object. Received: {line.strip()!r:.60}.")
        if column not in row:
            raise ValueError(_no_column(path, column, row) + f" (line {number})")
        if not isinstance(row[column], str):
            raise ValueError(f"{path}, line {number}: {column} must be a string. Received: {row[column]!r:.40}.")
        if row[column].strip():
            yield row[column]


def _separated(path: Path, file: Iterator[str], delimiter: str, column: str) -> Iterator[str]:
    csv.field_size_limit(2**31 - 1)
    rows = csv.DictReader(file, delimiter=delimiter)
    if column not in (rows.fieldnames or ()):
        raise ValueError(_no_column(path, column, rows.fieldnames or ()))
    for row in rows:
        if row[column] and row[column].strip():
            yield row[column]


def _parquet(path: Path, raw: BinaryIO, column: str) -> Iterator[str]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise ValueError(f"{path} needs pyarrow: pip install pyarrow to read it.") from None
    try:
        file = parquet.ParquetFile(raw)
    except ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet file: {error}.") from error
    if column not in file.schema_arrow.names:
        raise ValueError(_no_column(path, column, file.schema_arrow.names))
    for batch in file.iter_batches(columns=[column], batch_size=1000):
        yield from (text for text in batch.column(0).to_pylist() if text and text.strip())


def _no_column(path: Path, column: str, columns) -> str:
    return f"{path} has no column {column!r}; it has {', '.join(columns)}: name the column of the texts with --column."
