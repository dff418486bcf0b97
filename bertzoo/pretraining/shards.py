"""A corpus as one array of token ids on disk, read through memory mapping."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertzoo.text.tokenizer import Tokenizer

DOCUMENTS_AT_ONCE = 2000


@dataclass(frozen=True)
class Shards:
    """Documents end to end.

    tokens: integers (total,), each document closed by the separator. documents: int64 (documents + 1,), where each
        starts.
    """

    tokens: np.ndarray
    documents: np.ndarray
    tokenizer: Tokenizer

    @classmethod
    def open(cls, directory: str | Path) -> "Shards":
        """Opens what `prepare` wrote; the tokens stay on disk.

        Raises:
            ValueError: The directory holds no shards, or their tokens are not those of the vocabulary beside them.
        """
        directory = Path(directory)
        missing = [
            name for name in ("tokens.npy", "documents.npy", "tokenizer.json") if not (directory / name).exists()
        ]
        if missing:
            raise ValueError(
                f"{directory} lacks {', '.join(missing)}: it holds no shards; `bertzoo prepare` makes them."
            )
        tokenizer = Tokenizer.from_directory(directory)
        shards = cls(np.load(directory / "tokens.npy", mmap_mode="r"), np.load(directory / "documents.npy"), tokenizer)
        if len(shards.tokens) and int(shards.tokens[: 10**6].max()) >= tokenizer.vocabulary_size:
            raise ValueError(
                f"the tokens in {directory} are not those of its vocabulary of {tokenizer.vocabulary_size}."
            )
        return shards


def read_documents(paths: Iterable[str | Path]) -> Iterator[str]:
    """The documents of text files: one paragraph a line, a blank line between documents.

    Raises:
        ValueError: A file holds no UTF-8 text.
    """
    for path in paths:
        lines: list[str] = []
        try:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    if line.strip():
                        lines.append(line.strip())
                    elif lines:
                        yield "\n".join(lines)
                        lines = []
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no UTF-8 text: {error}.") from error
        if lines:
            yield "\n".join(lines)


def prepare(paths: Iterable[str | Path], tokenizer: Tokenizer, directory: str | Path) -> Shards:
    """Tokenizes text files into a directory of shards.

    Args:
        paths: Text files, one paragraph a line, a blank line between documents.
        tokenizer: Its separator closes each document.
        directory: Where to; the arrays appear there when they are whole.

    Raises:
        ValueError: The files hold no documents.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.max_length = None
    dtype = np.uint16 if tokenizer.vocabulary_size <= 2**16 else np.int32
    starts, total = [0], 0
    raw = directory / "tokens.part"
    with open(raw, "wb") as out:
        for chunk in _chunks(read_documents(paths)):
            encoded = tokenizer.encode(chunk)
            # The first token of each row, [CLS], goes; the last, [SEP], closes the document.
            keep = np.ones(len(encoded.token_ids), bool)
            keep[encoded.starts[:-1]] = False
            encoded.token_ids[keep].astype(dtype).tofile(out)
            ends = total + np.cumsum(encoded.lengths - 1)
            starts.extend(ends.tolist())
            total = starts[-1]
    if not total:
        raw.unlink()
        raise ValueError("the corpus is empty: no file holds a document.")
    tokens = np.memmap(raw, dtype=dtype, mode="r")
    for name, array in (("tokens.npy", tokens), ("documents.npy", np.array(starts, dtype=np.int64))):
        with open(directory / f"{name}.part", "wb") as out:
            np.save(out, array)
        (directory / f"{name}.part").replace(directory / name)
    raw.unlink()
    for name, content in tokenizer.files().items():
        (directory / name).write_bytes(content)
    (directory / "shards.json").write_text(json.dumps({"tokens": total, "documents": len(starts) - 1}) + "\n")
    return Shards.open(directory)


def _chunks(documents: Iterator[str]) -> Iterator[list[str]]:
    chunk = []
    for document in documents:
        chunk.append(document)
        if len(chunk) == DOCUMENTS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
