"""From texts to shards: by several processes, to be taken up where it was stopped, and whole or not at all."""

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bertzoo.checkpoints.saving import link_or_copy, recover, write_preset
from bertzoo.data.documents import Documents
from bertzoo.pretraining.shards import Shards
from bertzoo.text.tokenizer import Tokenizer

DOCUMENTS_AT_ONCE = 2000
CHARACTERS_AT_ONCE = 100_000  # of one document
CHUNKS_A_NOTE = 16
HEADER_BYTES = 128

_worker: Tokenizer | None = None


def prepare(
    sources: Sequence,
    tokenizer: Tokenizer,
    directory: str | Path,
    processes: int = 1,
    progress: Callable[[int, float], None] | None = None,
    column: str = "text",
    lines: bool = False,
) -> Shards:
    """Tokenizes texts into a directory of shards.

    The tokens go to a directory beside it, with a note of how far they are; a second call with the same files,
    tokenizer and directory goes on from there. When all is done the new shards take the old ones' place. The result is
    the same whatever the number of processes, and the corpus is never in memory.

    Args:
        sources, column, lines: See `Documents`.
        tokenizer: Its separator closes each document.
        directory: Where to.
        processes: Processes that tokenize; 1 for this one alone, whose tokenizer has threads of its own.
        progress: Called with the number of documents so far and the share of the files' bytes that was read.

    Raises:
        ValueError: The files hold no documents or no text, or the shards cannot be written.
    """
    directory, documents = Path(directory), Documents(sources, column, lines)
    if processes < 1:
        raise ValueError(f"processes must be 1 or more; it is {processes}.")
    tokenizer = tokenizer.with_tokens(())  # the caller's keeps its limit
    tokenizer.max_length = None
    directory.parent.mkdir(parents=True, exist_ok=True)
    recover(directory)
    part = _Part(directory, tokenizer, documents)
    rows = islice(documents, part.documents, None)
    with part:
        for tokens, lengths in _encoded(rows, tokenizer, processes):
            part.add(tokens, lengths)
            if progress is not None:
                progress(part.documents, documents.position / max(documents.size, 1))
    if not part.tokens:
        part.remove()
        raise ValueError("the corpus is empty: no file holds a document.")
    files = {name: content for name, content in tokenizer.files().items()}
    counts = {"tokens": part.tokens, "documents": part.documents}
    files["shards.json"] = (json.dumps(counts) + "\n").encode()
    write_preset(directory, files | part.files())
    part.remove()
    return Shards.open(directory)


class _Part:
    """Shards in the making: token ids and document ends as they come, and a note of what is surely on disk."""

    def __init__(self, directory: Path, tokenizer: Tokenizer, documents: Documents):
        self.folder = directory.with_name(f".{directory.name}.preparing")
        self.dtype = np.dtype(np.uint16 if tokenizer.vocabulary_size <= 2**16 else np.int32)
        self.purpose = _purpose(tokenizer, documents)
        self.documents, self.tokens, self._chunks = 0, 0, 0
        self.folder.mkdir(exist_ok=True)
        self._read_note()

    def _read_note(self) -> None:
        try:
            note = json.loads((self.folder / "note.json").read_text())
            sizes = [(self.folder / name).stat().st_size for name in ("tokens", "ends")]
        except (OSError, ValueError):
            return
        enough = sizes[0] >= HEADER_BYTES + note["tokens"] * self.dtype.itemsize and sizes[1] >= 8 * note["documents"]
        if self.purpose is not None and note["purpose"] == self.purpose and enough:
            self.documents, self.tokens = note["documents"], note["tokens"]

    def __enter__(self) -> "_Part":
        self._files = []
        for name, size in (("tokens", HEADER_BYTES + self.tokens * self.dtype.itemsize), ("ends", 8 * self.documents)):
            path = self.folder / name
            if not self.documents:
                path.unlink(missing_ok=True)  # it may be a name of finished shards, after a kill in `prepare`
            path.touch()
            file = open(path, "r+b")
            file.truncate(size)
            file.seek(size)
            self._files.append(file)
        return self

    def __exit__(self, *_) -> None:
        tokens, ends = self._files
        with tokens, ends:
            self._note()

    def add(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        self._files[0].write(tokens.astype(self.dtype).tobytes())
        self._files[1].write((self.tokens + np.cumsum(lengths, dtype=np.int64)).tobytes())
        self.documents, self.tokens = self.documents + len(lengths), self.tokens + len(tokens)
        self._chunks += 1
        if self._chunks % CHUNKS_A_NOTE == 0:
            self._note()

    def _note(self) -> None:
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        note = {"purpose": self.purpose, "documents": self.documents, "tokens": self.tokens}
        (self.folder / "note.part").write_text(json.dumps(note))
        (self.folder / "note.part").replace(self.folder / "note.json")

    def files(self) -> dict[str, Callable[[Path], None]]:
        """tokens.npy and documents.npy, for `write_preset`."""
        with open(self.folder / "tokens", "r+b") as file:
            file.write(_header(self.dtype, self.tokens))
        ends = np.fromfile(self.folder / "ends", np.int64)
        return {
            # The original stays in case the rest is not written.
            "tokens.npy": partial(link_or_copy, self.folder / "tokens"),
            "documents.npy": partial(_save, np.concatenate([[0], ends])),
        }

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _save(array: np.ndarray, path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, array)


def _header(dtype: np.dtype, count: int) -> bytes:
    """The head of an .npy file of a row of numbers, always as long, so that it can be written when they are counted."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({count},), }}"
    start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    return start + text.encode().ljust(HEADER_BYTES - 11) + b"\n"


def _purpose(tokenizer: Tokenizer, documents: Documents) -> str | None:
    """What tells whether unfinished shards are of the same work; None where the sources can't be told apart."""
    if not all(isinstance(source, Path) for source in documents.sources):
        return None
    stats = [(str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns) for path in documents.sources]
    digest = hashlib.sha256(json.dumps([stats, documents.column, documents.lines]).encode())
    for name, content in sorted(tokenizer.files().items()):
        digest.update(name.encode() + content)
    return digest.hexdigest()


def _encoded(documents: Iterator[str], tokenizer: Tokenizer, processes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(token ids, lengths) of chunks of documents, in their order; each document closed by the separator."""
    chunks = iter(lambda: list(islice(documents, DOCUMENTS_AT_ONCE)), [])
    if processes == 1:
        yield from (_encode(tokenizer, chunk) for chunk in chunks)
        return
    # Spawned, since a fork of a process with threads may hang.
    with ProcessPoolExecutor(processes, get_context("spawn"), _start_worker, (tokenizer,)) as pool:
        ahead = deque(pool.submit(_encode_there, chunk) for chunk in islice(chunks, 2 * processes))
        try:
            while ahead:
                yield ahead.popleft().result()
                ahead.extend(pool.submit(_encode_there, chunk) for chunk in islice(chunks, 1))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(tokenizer: Tokenizer) -> None:
    global _worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _worker = tokenizer


def _encode_there(chunk: list[str]) -> tuple[np.ndarray, np.ndarray]:
    return _encode(_worker, chunk)


def _encode(tokenizer: Tokenizer, chunk: list[str]) -> tuple[np.ndarray, np.ndarray]:
    parts = [_parts_of(document) for document in chunk]
    encoded = tokenizer.encode([part for document in parts for part in document])
    last = np.cumsum([len(document) for document in parts]) - 1
    # The first token of each row, [CLS], goes; the last, [SEP], stays where it closes a document.
    keep = np.ones(len(encoded.token_ids), bool)
    keep[encoded.row_splits[:-1]] = False
    keep[np.delete(encoded.row_splits[1:], last) - 1] = False
    return encoded.token_ids[keep], np.diff(np.concatenate([[0], np.cumsum(keep)[encoded.row_splits[1:][last] - 1]]))


def _parts_of(document: str) -> list[str]:
    """A document in parts of whole lines, so that a long one does not take a hundred times its size in memory."""
    if len(document) <= CHARACTERS_AT_ONCE:
        return [document]
    parts, begin = [], 0
    while begin < len(document):
        end = document.find("\n", begin + CHARACTERS_AT_ONCE) + 1 or len(document)
        parts.append(document[begin:end])
        begin = end
    return parts
