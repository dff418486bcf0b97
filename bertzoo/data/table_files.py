"""Tables of texts from csv, tsv, jsonl, parquet and txt files, also as .gz."""

import csv
import gzip
import io
import json
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from bertzoo.data.schemas import TARGET_COLUMNS

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet", ".txt")


@dataclass(frozen=True)
class Rows:
    """Columns of strings by name, of equal length; "" for empty and missing cells."""

    source: str
    columns: dict[str, list[str]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def read_rows(path: Path) -> Rows:
    """Reads a table: .csv (separated by comma, semicolon or tab), .tsv, .jsonl (an object per line), .txt (a text per
    line, as the column `text`), each also as .gz, or .parquet (needs pyarrow); `-` reads a text per line from standard
    input. All are UTF-8.

    Raises:
        ValueError: The file is of another kind, is not UTF-8, has no rows, or a row does not fit the header.
        OSError: It can't be read.
    """
    if str(path) == "-":
        return _checked("standard input", {"text": _lines(sys.stdin.read())})
    suffix = kind_of(path)
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} must be a {', '.join(SUFFIXES)} file.")
    if suffix == ".parquet":
        return _checked(str(path), {name: [_cell(v) for v in column] for name, column in _from_parquet(path).items()})
    text = read_text(path)
    if suffix == ".txt":
        return _checked(str(path), {"text": _lines(text)})
    return _checked(str(path), _from_json_lines(path, text) if suffix == ".jsonl" else _from_separated(path, text))


def load_table(path: str | Path) -> dict[str, list]:
    """A table as a dict of columns, for `fit`; numeric columns of labels and scores become numbers.

    See `read_rows` for the files; a .tsv is read without quoting, as in GLUE.
    """
    path = Path(path)
    if kind_of(path) == ".tsv":
        columns = _checked(str(path), _parse(path, read_text(path), "\t", quoted=False)).columns
    else:
        columns = read_rows(path).columns
    return {name: _numbers(values) if name in TARGET_COLUMNS else values for name, values in columns.items()}


def kind_of(path: Path) -> str:
    """The suffix of a file's format, without .gz."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def _numbers(values: list[str]) -> list:
    for kind in (int, float):
        try:
            return [kind(value) for value in values]
        except ValueError:
            pass
    return values


def _from_parquet(path: Path) -> dict[str, list]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow: pip install pyarrow.") from error
    return pyarrow.parquet.read_table(path).to_pydict()


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, decompressed if its name ends in .gz.

    Raises:
        ValueError: It is not UTF-8, or not a complete gzip file.
    """
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix.lower() == ".gz" else content).decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file: {error}.") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text: byte 0x{error.object[error.start]:02x} at position {error.start}. "
            "Save it as UTF-8 (in a spreadsheet: CSV UTF-8)."
        ) from None


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n") if line.strip()]


def _checked(source: str, columns: dict[str, list[str]]) -> Rows:
    if not columns or not next(iter(columns.values())):
        raise ValueError(f"{source} holds no rows.")
    return Rows(source, columns)


def _from_separated(path: Path, text: str) -> dict[str, list[str]]:
    header = text.split("\n", 1)[0]
    delimiter = "\t" if kind_of(path) == ".tsv" else max(",;\t", key=header.count)
    try:
        return _parse(path, text, delimiter, quoted=True)
    except ValueError:
        # Many published tsv files, such as GLUE's, do not quote, and their texts contain quotation marks.
        if kind_of(path) != ".tsv":
            raise
        return _parse(path, text, delimiter, quoted=False)


def _parse(path: Path, text: str, delimiter: str, quoted: bool) -> dict[str, list[str]]:
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        strict=True,
    )
    names, rows = None, []
    try:
        for row in reader:
            if not row:
                continue
            if names is None:
                names = [name.strip() for name in row]
            elif len(row) != len(names):
                raise ValueError(f"{path}, line {reader.line_num}: {len(row)} cells; the header has {len(names)}.")
            else:
                rows.append(row)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None
    names = names or []
    if len(set(names)) < len(names):
        raise ValueError(f"{path} has two columns with the same name: {', '.join(names)}.")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _from_json_lines(path: Path, text: str) -> dict[str, list[str]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}.") from None
        if not isinstance(row, dict):
            raise ValueError(f'{path}, line {number} must be an object such as {{"text": "…", "label": "…"}}.')
        rows.append({name: _cell(value) for name, value in row.items()})
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, "") for row in rows] for name in names}


def _cell(value) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
