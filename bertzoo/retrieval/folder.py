"""Search in the files of a folder: an index of their passages that follows the files.

Passages are found by the vectors of a sentence encoder and by their words (BM25), and both rankings are fused. The
encoder is exported once, in 8 bits, into the index's directory, so that neither questions nor new files need Keras.
"""

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.files import find_preset_directory
from bertzoo.checkpoints.sentence_transformers import document_prompt_name
from bertzoo.export.engine import INT8_MODEL_FILE, MODEL_FILE, OnnxModel
from bertzoo.export.in_process import export_command, export_error
from bertzoo.retrieval import DEFAULT_PRESET
from bertzoo.retrieval.bm25 import document_terms, query_terms
from bertzoo.retrieval.index.dense import Dense
from bertzoo.retrieval.index.index import Index
from bertzoo.retrieval.index.manifest import LOCK, lock
from bertzoo.retrieval.index.sparse import Sparse
from bertzoo.retrieval.passages import READERS, Passage, UnreadableFile, read_passages

DENSE, WORDS = "dense", "words"
MARKER = "bertzoo_search.json"  # whose index the directory holds; nothing is removed from directories without it
PASSAGE_WORDS = 100.0  # of a passage on average, as `passages.LONGEST` cuts them
PASSAGES_AT_ONCE = 256  # that become one change of the index


class Answer(NamedTuple):
    """A passage that was found: its file, relative to the folder, its place in the file, text and score."""

    file: str
    place: str
    text: str
    score: float


class FileState(NamedTuple):
    """A file as it was read: size, time of change in nanoseconds, how many passages it has, and why it could not be
    read."""

    size: int
    modified: int
    passages: int = 0
    problem: str | None = None


class Changes(NamedTuple):
    """What differs between the files and the index: files to read, and files that are gone."""

    changed: dict[str, FileState]
    gone: list[str]


class FolderIndex:
    """The passages of a folder's files.

    Args:
        folder: The folder. Nothing is written into it.
        preset: The sentence encoder: a bundled name, a directory, or `hf://owner/name`.
        directory: Where the index is kept; where None, in the user's cache.

    Raises:
        NotADirectoryError: There is no such folder.
        CheckpointError: The preset can't be used, or the directory holds the index of another preset or folder.
        ValueError: The directory holds other files, or its files would be among those that are searched.
    """

    def __init__(self, folder: str | Path, preset: str = DEFAULT_PRESET, directory: str | Path | None = None):
        self.folder = Path(folder).expanduser().resolve()
        if not self.folder.is_dir():
            raise NotADirectoryError(f"folder must be a directory. Received: {folder}.")
        self.directory = default_directory(self.folder, preset) if directory is None else Path(directory).expanduser()
        _check_place(self.directory, self.folder)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._origin = {"folder": str(self.folder), "preset": preset}
        _check_is_ours(self.directory, self._origin)
        self._encoder = fingerprint(preset)
        if not self._is_current():
            with lock(self.directory):
                if not self._is_current():
                    self._begin_anew(preset)
        self._model = OnnxModel.from_directory(self.directory / "model")
        settings = self._model.settings
        if self._model.task != "SentenceEncoder" or self._model.tokenizer is None:
            raise CheckpointError(f"preset must be a sentence encoder. Received: {preset}, a {self._model.task}.")
        prompts, default = settings.get("prompts") or {}, settings.get("default_prompt")
        self._query_prompt = prompts.get("query", prompts.get(default, ""))
        self._document_prompt = prompts.get(document_prompt_name(prompts) or default, "")
        self._index = Index(self.directory / "index", {DENSE: Dense(settings["width"]), WORDS: Sparse()})
        self._files = self._stored_files()

    def _begin_anew(self, preset: str) -> None:
        """Exports the encoder, and removes the index of an earlier one. If it is interrupted, it is done again."""
        self._mark(self._origin)
        shutil.rmtree(self.directory / "index", ignore_errors=True)
        export_encoder(preset, self.directory / "model")
        self._mark({**self._origin, "encoder": self._encoder})

    def _mark(self, content: dict[str, str]) -> None:
        temporary = self.directory / f".{MARKER}"
        temporary.write_text(json.dumps(content), "utf-8")
        os.replace(temporary, self.directory / MARKER)

    def _is_current(self) -> bool:
        return (_read_marker(self.directory) or {}).get("encoder") == self._encoder

    def _stored_files(self) -> dict[str, FileState]:
        return {name: FileState(*state) for name, state in self._index.metadata.get("files", {}).items()}

    def __len__(self) -> int:
        """How many passages there are."""
        return len(self._index)

    @property
    def unreadable(self) -> dict[str, str]:
        """File -> why it could not be read."""
        return {name: state.problem for name, state in self._files.items() if state.problem is not None}

    # ---- following the files

    def find_changes(self) -> Changes:
        """Compares sizes and times of the files with those in the index."""
        present = dict(find_files(self.folder))
        changed = {
            name: state
            for name, state in present.items()
            if name not in self._files or self._files[name][:2] != state[:2]
        }
        return Changes(changed, [name for name in self._files if name not in present])

    def update(self, changes: Changes, report: Callable[[str], None] = lambda file: None) -> None:
        """Reads changed files, and removes those that are gone. What was done stays if it is interrupted. One process
        does so at a time, others wait.

        Args:
            changes: What `find_changes` gave.
            report: Called with each file whose passages are stored.
        """
        with lock(self.directory):
            if not self._is_current():
                raise CheckpointError(f"{self.directory} was made again by another process meanwhile. Open it again.")
            self._index = Index(self.directory / "index")  # as another process may have left it since
            self._files = self._stored_files()
            self._update(changes, report)

    def _update(self, changes: Changes, report: Callable[[str], None]) -> None:
        files = dict(self._files)
        gone = [(file, files.pop(file)) for file in changes.gone if file in files]
        removed = [name for file, state in gone for name in _ids(file, 0, state.passages)]
        read: list[tuple[str, Passage]] = []
        waiting: list[str] = []

        def store() -> None:
            self._store(read, removed, files)
            for file in waiting:
                report(file)
            for done in (read, removed, waiting):
                done.clear()

        for file, state in changes.changed.items():
            passages, problem = self._read(file)
            removed += _ids(file, len(passages), files.get(file, state).passages)
            files[file] = state._replace(passages=len(passages), problem=problem)
            read += zip(_ids(file, 0, len(passages)), passages)
            waiting.append(file)
            if len(read) >= PASSAGES_AT_ONCE:
                store()
        if waiting or removed or changes.gone:
            store()

    def _read(self, file: str) -> tuple[list[Passage], str | None]:
        """The passages of a file, and why it could not be read."""
        try:
            return read_passages(self.folder / file), None
        except (UnreadableFile, OSError) as error:
            return [], str(getattr(error, "strerror", None) or error)

    def _store(self, read: list[tuple[str, Passage]], removed: list[str], files: dict[str, FileState]) -> None:
        texts = [passage.text for _, passage in read]
        values = {
            DENSE: self._encode([self._document_prompt + text for text in texts]),
            WORDS: [document_terms(text, PASSAGE_WORDS) for text in texts],
        }
        metadata = {"files": files}
        ids = [document_id for document_id, _ in read]
        self._index.add(ids, values, [list(passage) for _, passage in read], remove=removed, metadata=metadata)
        self._files = dict(files)

    # ---- questions

    def search(self, question: str, top_k: int = 5) -> list[Answer]:
        """The passages that answer a question best.

        Args:
            question: Words or a sentence.
            top_k: How many passages.
        """
        words = query_terms(question, len(self), self._count_documents)
        queries = {DENSE: self._encode([self._query_prompt + question]), WORDS: [words]}
        return [
            Answer(hit.id.rpartition("#")[0], hit.payload[1], hit.payload[0], hit.score)
            for hit in self._index.search(queries, top_k)[0]
        ]

    def _count_documents(self, terms: np.ndarray) -> np.ndarray:
        counts = np.zeros(len(terms), np.int64)
        for part in self._index.parts(WORDS):
            counts += part.document_frequencies(terms)
        return counts

    def _encode(self, texts: list[str]) -> np.ndarray:
        """float32 (n, width)."""
        assert self._model.tokenizer is not None
        if not texts:
            return np.zeros((0, self._model.settings["width"]), np.float32)
        return self._model.run(self._model.tokenizer.encode(texts), ["sentence_embedding"])["sentence_embedding"]


def find_files(folder: Path) -> Iterator[tuple[str, FileState]]:
    """The files of a folder that can be read, by relative path, with size and time of change. Hidden files and folders,
    devices and links that lead out of the folder are left out, and links to folders are not followed."""
    inside = folder.resolve()
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if name.startswith(".") or path.suffix.lower() not in READERS:
                continue
            try:
                state = path.stat()
            except OSError:  # a link to nowhere, or removed meanwhile
                continue
            if not stat.S_ISREG(state.st_mode) or (path.is_symlink() and not path.resolve().is_relative_to(inside)):
                continue
            yield path.relative_to(folder).as_posix(), FileState(state.st_size, state.st_mtime_ns)


def fingerprint(preset: str) -> str:
    """Tells a preset from what stood under its name before, by the path, sizes and times of its files; a name on the
    hub stands for itself.

    Raises:
        CheckpointError: There is no such preset.
    """
    if preset.startswith("hf://"):
        return preset
    root = find_preset_directory(preset).resolve()
    states = [(path.relative_to(root).as_posix(), path.stat()) for path in sorted(root.rglob("*")) if path.is_file()]
    described = [str(root), *((name, state.st_size, state.st_mtime_ns) for name, state in states)]
    return hashlib.blake2b(json.dumps(described).encode(), digest_size=16).hexdigest()


def _check_place(directory: Path, folder: Path) -> None:
    """Refuses a directory for an index whose files would be among those that are searched.

    Raises:
        ValueError: It is the folder, contains it, or lies in it and is not hidden.
    """
    place = directory.resolve()
    hidden = place.is_relative_to(folder) and any(part.startswith(".") for part in place.relative_to(folder).parts)
    if folder.is_relative_to(place) or (place.is_relative_to(folder) and not hidden):
        raise ValueError(
            f"the index must be outside of the folder {folder}, or hidden in it (.index). Received: {directory}."
        )


def _check_is_ours(directory: Path, origin: dict[str, str]) -> None:
    """Refuses a directory that holds other files, or the index of another folder or preset.

    Raises:
        CheckpointError: It is the index of another folder or preset.
        ValueError: There are other files, and no marker.
    """
    others = sorted({path.name for path in directory.iterdir()} - {LOCK, f".{MARKER}"})
    known = _read_marker(directory)
    if known is not None and {**known, **origin} != known:
        raise CheckpointError(
            f"{directory} must be an index of {origin['folder']} by {origin['preset']}. Received: one of "
            f"{known.get('folder')} by {known.get('preset')}. Name another directory."
        )
    if others and known is None:
        raise ValueError(
            f"{directory} must be empty or hold an index of a folder. Received: a directory with "
            f"{', '.join(others[:5])}. Name another directory."
        )


def _read_marker(directory: Path) -> dict[str, str] | None:
    """Folder and preset of an index, and the fingerprint of its encoder once it is whole; None where there is none."""
    try:
        content = json.loads((directory / MARKER).read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def default_directory(folder: Path, preset: str) -> Path:
    """Where the index of a folder is kept: in the user's cache.

    Raises:
        ImportError: platformdirs is missing.
    """
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise ImportError(
            f'{error}. Search in folders needs the extra "search"; in the clone of this project: '
            'pip install -e ".[search]"'
        ) from error
    key = hashlib.blake2b(f"{folder}\0{preset}".encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return user_cache_path("bertzoo") / "search" / f"{folder.name or 'root'}-{key}"


def export_encoder(preset: str, directory: Path) -> None:
    """Writes an encoder for ONNX Runtime, in 8 bits if its vectors stay, by `bertzoo export` in a process of its own.

    Args:
        preset: The preset.
        directory: Where to.

    Raises:
        CheckpointError: The preset can't be used.
    """
    temporary = directory.with_name(f".{directory.name}-{os.getpid()}")
    try:
        for int8 in (True, False):
            command = export_command(preset, temporary, int8)
            ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if not ended.returncode:
                break
        else:
            raise export_error(ended.stderr)
        if (temporary / INT8_MODEL_FILE).exists():  # compared with float32 when it was written
            os.replace(temporary / INT8_MODEL_FILE, temporary / MODEL_FILE)
        shutil.rmtree(directory, ignore_errors=True)
        temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _ids(file: str, begin: int, end: int) -> list[str]:
    return [f"{file}#{number}" for number in range(begin, end)]
