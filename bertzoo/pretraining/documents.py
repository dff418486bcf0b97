"""Documents from files: plain text, gzip, Zstandard, and JSON lines."""

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

JSON_LINES = (".jsonl", ".ndjson")


class Documents:
    """The documents of files, or of a `datasets.Dataset` with a column `text`, each time anew; none is kept.

    Text files hold a paragraph a line and a blank line between documents; JSON lines (.jsonl) an object a line, whose
    `text` is a document. Names that end in .gz or .zst are decompressed as they are read.

    Args:
        sources: Paths, or objects that yield mappings with a `text`.

    Raises:
        ValueError: While reading: a file holds no UTF-8 text or no JSON, or Zstandard is not installed.
    """

    def __init__(self, sources: Sequence):
        self.sources = [Path(source) if isinstance(source, (str, Path)) else source for source in sources]
        self.size = sum(source.stat().st_size for source in self.sources if isinstance(source, Path))
        # Bytes read so far, as they lie on disk.
        self.position = 0

    def __iter__(self) -> Iterator[str]:
        done = 0
        for source in self.sources:
            if not isinstance(source, Path):
                yield from (row["text"] for row in source)
                continue
            with open(source, "rb") as raw:
                for document in _read(source, raw):
                    self.position = done + raw.tell()
                    yield document
            done += source.stat().st_size
            self.position = done


def _read(path: Path, raw: BinaryIO) -> Iterator[str]:
    name = path.name.lower()
    packed = next((end for end in (".gz", ".zst") if name.endswith(end)), "")
    try:
        lines = io.TextIOWrapper(_unpacked(path, packed, raw), encoding="utf-8", newline=None)
        rows = _json_lines(path, lines) if name.removesuffix(packed).endswith(JSON_LINES) else _paragraphs(lines)
        for document in rows:
            if "\0" in document:
                raise ValueError(f"{path} is no text: it holds zero bytes.")
            yield document
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text: {error}.") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no whole gzip file: {error}.") from error


def _unpacked(path: Path, packed: str, raw: BinaryIO) -> BinaryIO:
    if packed == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if packed == ".zst":
        try:
            import zstandard
        except ImportError:
            raise ValueError(f"{path} is compressed with Zstandard: pip install zstandard to read it.") from None
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
    return raw


def _paragraphs(file: Iterator[str]) -> Iterator[str]:
    lines: list[str] = []
    for line in file:
        if line.strip():
            lines.append(line.strip())
        elif lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def _json_lines(path: Path, file: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path}, line {number}: expected a JSON object with a text.") from None
        if not isinstance(text, str):
            raise ValueError(f"{path}, line {number}: text must be a string; it is {text!r:.40}.")
        if text.strip():
            yield text
