"""Tokenizing texts into a corpus: with several processes, resumable, complete or not at all."""

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bertzoo.checkpoints.saving import link_or_copy, recover, write_preset
from bertzoo.data.files import Documents
from bertzoo.pretraining.corpus import TokenCorpus
from bertzoo.text.tokenizer import Tokenizer

DOCUMENTS_AT_ONCE = 2000
CHARACTERS_AT_ONCE = 100_000  # of one document
CHUNKS_PER_RECORD = 16
HEADER_BYTES = 128

_worker_tokenizer: Tokenizer  # in a process of the pool


def prepare(
    sources: Sequence,
    tokenizer: Tokenizer,
    directory: str | Path,
    processes: int = 1,
    progress: Callable[[int, float], None] | None = None,
    column: str = "text",
    lines: bool = False,
) -> TokenCorpus:
    """Tokenizes texts into a corpus directory.

    The tokens are written to a temporary directory beside it with a record of the progress; a second call with the same
    files, tokenizer and directory resumes there. The finished corpus then replaces an old one. The result does not
    depend on the number of processes, and the corpus is never held in memory.

    Args:
        sources: Paths of files, or objects that yield mappings; see `bertzoo.data.documents.Documents`.
        tokenizer: The tokenizer; its separator ends each document.
        directory: The directory to write.
        processes: Processes that tokenize; with 1, this process with the tokenizer's threads.
        progress: Called with the number of documents so far and the fraction of the files' bytes that was read.
        column: The column of the texts, in files with columns.
        lines: Each line of a text file is a document.

    Raises:
        ValueError: The files hold no documents or no text, or the corpus can't be written.
    """
    directory, documents = Path(directory), Documents(sources, column, lines)
    tokenizer = tokenizer.with_tokens(())  # the caller's keeps its max_length
    tokenizer.max_length = None
    directory.parent.mkdir(parents=True, exist_ok=True)
    recover(directory)
    part = _PartialCorpus(directory, tokenizer, documents)
    rest = islice(documents, part.documents, None)
    with part:
        for tokens, lengths in _encoded(rest, tokenizer, processes):
            part.add(tokens, lengths)
            if progress is not None:
                progress(part.documents, documents.position / max(documents.size, 1))
    if not part.tokens:
        part.remove()
        raise ValueError("expected texts. Received: files without a document.")
    counts = {"tokens": part.tokens, "documents": part.documents}
    counts_file = {"corpus.json": (json.dumps(counts) + "\n").encode()}
    write_preset(directory, {**tokenizer.files(), **counts_file, **part.files()})
    part.remove()
    return TokenCorpus.open(directory)


class _PartialCorpus:
    """An unfinished corpus: files of token ids and of document ends, and a record of what is certainly on disk."""

    def __init__(self, directory: Path, tokenizer: Tokenizer, documents: Documents):
        self.folder = directory.with_name(f".{directory.name}.preparing")
        self.dtype = np.dtype(np.uint16 if tokenizer.vocabulary_size <= 2**16 else np.int32)
        self.fingerprint = _fingerprint(tokenizer, documents)
        self.documents = self.tokens = self._chunks = 0
        self.folder.mkdir(exist_ok=True)
        with suppress(OSError, ValueError):
            record = json.loads((self.folder / "progress.json").read_text())
            sizes = self._sizes(record["tokens"], record["documents"])
            is_on_disk = all((self.folder / name).stat().st_size >= size for name, size in sizes.items())
            if is_on_disk and self.fingerprint is not None and record["fingerprint"] == self.fingerprint:
                self.documents, self.tokens = record["documents"], record["tokens"]

    def _sizes(self, tokens: int, documents: int) -> dict[str, int]:
        return {"tokens": HEADER_BYTES + tokens * self.dtype.itemsize, "ends": 8 * documents}

    def __enter__(self) -> "_PartialCorpus":
        self._files = []
        for name, size in self._sizes(self.tokens, self.documents).items():
            path = self.folder / name
            if not self.documents:
                path.unlink(missing_ok=True)  # a hard link to a finished corpus, after a kill in `prepare`
            path.touch()
            file = open(path, "r+b")
            file.truncate(size)
            file.seek(size)
            self._files.append(file)
        return self

    def __exit__(self, *_: object) -> None:
        tokens, ends = self._files
        with tokens, ends:
            self._record()

    def add(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        self._files[0].write(tokens.astype(self.dtype).tobytes())
        self._files[1].write((self.tokens + np.cumsum(lengths, dtype=np.int64)).tobytes())
        self.documents, self.tokens = self.documents + len(lengths), self.tokens + len(tokens)
        self._chunks += 1
        if self._chunks % CHUNKS_PER_RECORD == 0:
            self._record()

    def _record(self) -> None:
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        record = {"fingerprint": self.fingerprint, "documents": self.documents, "tokens": self.tokens}
        (self.folder / "progress.part").write_text(json.dumps(record))
        (self.folder / "progress.part").replace(self.folder / "progress.json")

    def files(self) -> dict[str, Callable[[Path], None]]:
        """tokens.npy and documents.npy, for `write_preset`."""
        # The header of a one-dimensional .npy file, of fixed size, so that it can be written when the length is known.
        header = f"{{'descr': '{self.dtype.str}', 'fortran_order': False, 'shape': ({self.tokens},), }}"
        start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
        with open(self.folder / "tokens", "r+b") as file:
            file.write(start + header.encode().ljust(HEADER_BYTES - 11) + b"\n")
        ends = np.fromfile(self.folder / "ends", np.int64)
        return {
            # The original is kept in case the rest is not written.
            "tokens.npy": partial(link_or_copy, self.folder / "tokens"),
            "documents.npy": partial(_save, np.concatenate([[0], ends])),
        }

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _save(array: np.ndarray, path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, array)


def _fingerprint(tokenizer: Tokenizer, documents: Documents) -> str | None:
    """Identifies the work of an unfinished corpus; None where the sources are not files."""
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
    # Spawned, since forking a process with threads may hang.
    with ProcessPoolExecutor(processes, get_context("spawn"), _start_worker, (tokenizer,)) as pool:
        ahead = deque(pool.submit(_encode_in_worker, chunk) for chunk in islice(chunks, 2 * processes))
        try:
            while ahead:
                yield ahead.popleft().result()
                ahead.extend(pool.submit(_encode_in_worker, chunk) for chunk in islice(chunks, 1))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(tokenizer: Tokenizer) -> None:
    global _worker_tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _worker_tokenizer = tokenizer


def _encode_in_worker(chunk: list[str]) -> tuple[np.ndarray, np.ndarray]:
    return _encode(_worker_tokenizer, chunk)


def _encode(tokenizer: Tokenizer, chunk: list[str]) -> tuple[np.ndarray, np.ndarray]:
    split = [_split(document) for document in chunk]
    encoded = tokenizer.encode([text for texts in split for text in texts])
    last = np.cumsum([len(texts) for texts in split]) - 1
    # The first token of each text, [CLS], goes; the last, [SEP], stays where it closes a document.
    keep = np.ones(len(encoded.token_ids), bool)
    keep[encoded.row_splits[:-1]] = False
    keep[np.delete(encoded.row_splits[1:], last) - 1] = False
    return encoded.token_ids[keep], np.diff(np.concatenate([[0], np.cumsum(keep)[encoded.row_splits[1:][last] - 1]]))


def _split(document: str) -> list[str]:
    """A document in texts of whole lines, since encoding takes a hundred times the memory of the text."""
    texts: list[str] = []
    begin = 0
    while begin < len(document) or not texts:
        end = document.find("\n", begin + CHARACTERS_AT_ONCE) + 1 or len(document)
        texts.append(document[begin:end])
        begin = end
    return texts
