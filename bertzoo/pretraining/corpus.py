"""A corpus as one memory-mapped array of token ids: how it is made, its documents, and its sentences."""

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import regex

from bertzoo.checkpoints.saving import link_or_copy, recover_interrupted_save, write_preset
from bertzoo.data.files import Documents
from bertzoo.text.tokenizer import Tokenizer

NGRAM, SAMPLED = 13, 10_000  # tokens, as in Brown et al. 2020, appendix C; samples of the held-out text
# The punctuation that ends a sentence in any script (Unicode's property Sentence_Terminal: ". ? ! 。 । ؟ …"), with
# closing quotation marks and brackets.
SENTENCE_END = regex.compile(r"\p{Sentence_Terminal}+[\p{Pe}\p{Pf}\"']*")
LONGEST = 126  # tokens of an example of 128
TOKENS_AT_ONCE = 2**24
DOCUMENTS_AT_ONCE = 2000
CHARACTERS_AT_ONCE = 100_000  # of one document
CHUNKS_PER_RECORD = 16
HEADER_BYTES = 128
COUNTS = "corpus.json"

_worker_tokenizer: Tokenizer  # in a process of the pool


@dataclass(frozen=True)
class TokenCorpus:
    """Documents end to end.

    Args:
        tokens: Integers (total,); each document ends with the separator.
        documents: int64 (documents + 1,), where each document starts.
        tokenizer: The tokenizer of the tokens.
    """

    tokens: np.ndarray
    documents: np.ndarray
    tokenizer: Tokenizer

    @classmethod
    def open(cls, directory: str | Path) -> "TokenCorpus":
        """Opens a directory that `prepare_corpus` wrote; the tokens stay on disk.

        Raises:
            ValueError: The directory holds no corpus, or its tokens exceed the vocabulary beside them.
        """
        directory = Path(directory)
        recover_interrupted_save(directory)
        missing = [
            name for name in ("tokens.npy", "documents.npy", "tokenizer.json") if not (directory / name).exists()
        ]
        if missing:
            raise ValueError(
                f"{directory} is not a corpus: it lacks {', '.join(missing)}. `bertzoo prepare` makes one."
            )
        tokenizer = Tokenizer.from_directory(directory)
        corpus = cls(np.load(directory / "tokens.npy", mmap_mode="r"), np.load(directory / "documents.npy"), tokenizer)
        if len(corpus.tokens) and int(corpus.tokens[: 10**6].max()) >= tokenizer.vocabulary_size:
            raise ValueError(
                f"the tokens in {directory} must be below {tokenizer.vocabulary_size}, the size of its vocabulary."
            )
        return corpus


def ngram_overlap(corpus: TokenCorpus, held_out_corpus: TokenCorpus) -> float:
    """The fraction of 10,000 sequences of 13 tokens, sampled from held-out text, that the corpus contains too.

    Source: Brown et al. 2020, "Language Models are Few-Shot Learners", appendix C.
    """
    count = len(held_out_corpus.tokens) - NGRAM + 1
    if count < 1 or len(corpus.tokens) < NGRAM:
        return 0.0
    rng = np.random.Generator(np.random.Philox(key=[0, 0]))
    starts = np.sort(rng.choice(count, min(count, SAMPLED), replace=False))
    sampled = np.concatenate([_hashes(held_out_corpus.tokens[i : i + NGRAM]) for i in starts])
    is_known = np.zeros(len(sampled), bool)
    for first in range(0, len(corpus.tokens) - NGRAM + 1, 2**20):
        is_known |= np.isin(sampled, _hashes(corpus.tokens[first : first + 2**20 + NGRAM - 1]))
    return float(is_known.mean())


def _hashes(tokens: np.ndarray) -> np.ndarray:
    """uint64, one number for each sequence of 13 tokens."""
    tokens = tokens.astype(np.uint64) + np.uint64(1)
    total = np.zeros(len(tokens) - NGRAM + 1, np.uint64)
    for i in range(NGRAM):
        total = total * np.uint64(0x9E3779B97F4A7C15) + tokens[i : len(total) + i]
    return total


class CorpusSentences:
    """The sentences of a corpus.

    A sentence ends with the punctuation that ends sentences in any script, or with its document. A sentence of more
    than `max_tokens` tokens, as in a log file or a language without such punctuation, is split every `max_tokens`
    tokens, so that examples may begin there.

    Args:
        corpus: The corpus.
        max_tokens: Most tokens of a sentence.

    Attributes:
        starts, ends: int64 (n,); sentence i is `tokens[starts[i]:ends[i]]`, without the document's separator.
        bounds: int64 (documents + 1,); document d is the sentences `bounds[d]:bounds[d + 1]`. Documents without a word
            are left out.
    """

    def __init__(self, corpus: TokenCorpus, max_tokens: int = LONGEST):
        self.corpus = corpus
        self.starts = _with_cuts(_starts(corpus), corpus, max_tokens)
        self.bounds = np.unique(np.searchsorted(self.starts, corpus.documents))

    @cached_property
    def ends(self) -> np.ndarray:
        ends = np.append(self.starts[1:], len(self.corpus.tokens))
        closing = self.bounds[1:] - 1
        documents = self.corpus.documents
        ends[closing] = documents[np.searchsorted(documents, self.starts[closing], "right")] - 1
        return ends

    @cached_property
    def followed_indices(self) -> np.ndarray:
        """The sentences that are followed by another one of their document, int64, ascending."""
        return np.flatnonzero(self.ends[:-1] == self.starts[1:])

    def document_indices(self, sentence_indices: np.ndarray) -> np.ndarray:
        """The documents of sentences: int (n,) -> int (n,), indices."""
        return np.searchsorted(self.bounds, sentence_indices, "right") - 1


def _sentence_end_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of the tokens that end a sentence."""
    ids = sorted(tokenizer.vocabulary.values())
    texts = tokenizer.decode([[i] for i in ids])  # without special tokens
    return [i for i, text in zip(ids, texts) if SENTENCE_END.fullmatch(text.strip())]


def _with_cuts(starts: np.ndarray, corpus: TokenCorpus, longest: int) -> np.ndarray:
    """Starts with more of them inside sentences that are longer than `longest` tokens."""
    # A document's separator is its last token, in which no sentence goes on.
    borders = np.append(starts, len(corpus.tokens))
    ends = corpus.documents[np.searchsorted(corpus.documents, starts, "right")] - 1
    sizes = np.minimum(borders[1:], ends) - starts
    counts = np.maximum(1, -(-sizes // longest))
    first = np.cumsum(counts) - counts
    within = np.arange(counts.sum()) - np.repeat(first, counts)
    return np.repeat(starts, counts) + within * longest


def _starts(corpus: TokenCorpus) -> np.ndarray:
    closing = np.array([*_sentence_end_ids(corpus.tokenizer), corpus.tokenizer.sep_id], corpus.tokens.dtype)
    starts, before = [np.zeros(0, np.int64)], True
    for first in range(0, len(corpus.tokens), TOKENS_AT_ONCE):
        closes = np.isin(corpus.tokens[first : first + TOKENS_AT_ONCE], closing)
        after = np.concatenate([[before], closes[:-1]])
        starts.append(np.flatnonzero(after & ~closes) + first)
        before = closes[-1]
    return np.concatenate(starts)


def prepare_corpus(
    sources: Sequence,
    tokenizer: Tokenizer,
    directory: str | Path,
    num_processes: int = 1,
    on_progress: Callable[[int, float], None] | None = None,
    text_column: str = "text",
    document_per_line: bool = False,
) -> TokenCorpus:
    """Tokenizes texts into a corpus directory.

    The tokens are written to a temporary directory beside it with a record of the progress; a second call with the same
    files, tokenizer and directory resumes there. The finished corpus then replaces an old one. The result does not
    depend on the number of processes, and the corpus is never held in memory.

    Args:
        sources: Paths of files, or objects that yield mappings; see `bertzoo.data.files.Documents`.
        tokenizer: The tokenizer; its separator ends each document.
        directory: The directory to write.
        num_processes: Processes that tokenize; with 1, this process with the tokenizer's threads.
        on_progress: Called with the number of documents so far and the fraction of the files' bytes that was read.
        text_column: The column of the texts, in files with columns.
        document_per_line: Each line of a text file is a document.

    Raises:
        ValueError: The files hold no documents or no text, or the corpus can't be written.
    """
    documents = Documents(sources, text_column, document_per_line)
    write_corpus(documents, tokenizer, Path(directory), num_processes, on_progress)
    return TokenCorpus.open(directory)


def write_corpus(
    documents: Documents,
    tokenizer: Tokenizer,
    directory: Path,
    num_processes: int,
    on_progress: Callable[[int, float], None] | None,
    part_notes: Mapping[str, Any] | None = None,
) -> None:
    """Tokenizes documents into a directory, see `prepare_corpus`.

    Args:
        documents: The documents.
        tokenizer: The tokenizer.
        directory: The directory to write.
        num_processes: Processes that tokenize.
        on_progress: As for `prepare_corpus`.
        part_notes: For a part of a corpus, entries of its corpus.json; a part may be without documents.

    Raises:
        ValueError: A whole corpus holds no documents, or the directory can't be written.
    """
    tokenizer = tokenizer.with_special_tokens(())  # the caller's keeps its max_length
    tokenizer.max_length = None
    directory.parent.mkdir(parents=True, exist_ok=True)
    recover_interrupted_save(directory)
    unfinished = _PartialCorpus(directory, tokenizer, documents)
    rest = islice(documents, unfinished.documents, None)
    with unfinished:
        for tokens, lengths in _encoded(rest, tokenizer, num_processes):
            unfinished.add(tokens, lengths)
            if on_progress is not None:
                on_progress(unfinished.documents, documents.position / max(documents.size, 1))
    if not unfinished.tokens and part_notes is None:
        unfinished.remove()
        raise ValueError("expected texts. Received: files without a document.")
    counts = {"tokens": unfinished.tokens, "documents": unfinished.documents, **(part_notes or {})}
    write_preset(directory, {**tokenizer.file_contents(), COUNTS: json_line(counts), **unfinished.files()})
    unfinished.remove()


def json_line(content: Mapping[str, Any]) -> bytes:
    """A small JSON file."""
    return (json.dumps(content) + "\n").encode()


def token_file_header(dtype: np.dtype, count: int) -> bytes:
    """The header of a one-dimensional .npy file, of fixed size, so that it can be written when the length is known."""
    header = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({count},), }}"
    start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    return start + header.encode().ljust(HEADER_BYTES - 11) + b"\n"


def save_array(array: np.ndarray, path: Path) -> None:
    """Writes a .npy file, whatever the path's suffix."""
    with open(path, "wb") as file:
        np.save(file, array)


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
                path.unlink(missing_ok=True)  # a hard link to a finished corpus, after a kill in `prepare_corpus`
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
        with open(self.folder / "tokens", "r+b") as file:
            file.write(token_file_header(self.dtype, self.tokens))
        ends = np.fromfile(self.folder / "ends", np.int64)
        return {
            # The original is kept in case the rest is not written.
            "tokens.npy": partial(link_or_copy, self.folder / "tokens"),
            "documents.npy": partial(save_array, np.concatenate([[0], ends])),
        }

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _fingerprint(tokenizer: Tokenizer, documents: Documents) -> str | None:
    """Identifies the work of an unfinished corpus; None where the sources are not files."""
    if not all(isinstance(source, Path) for source in documents.sources):
        return None
    stats = [(str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns) for path in documents.sources]
    digest = hashlib.sha256(json.dumps([stats, documents.column, documents.lines]).encode())
    for name, content in sorted(tokenizer.file_contents().items()):
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
