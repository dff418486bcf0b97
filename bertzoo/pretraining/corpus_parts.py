"""A corpus that several machines make: each tokenizes its share of the files, and one joins the parts."""

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.checkpoints.saving import recover_interrupted_save, write_preset
from bertzoo.data.files import Documents
from bertzoo.pretraining.corpus import (
    COUNTS,
    HEADER_BYTES,
    TokenCorpus,
    json_line,
    save_array,
    token_file_header,
    write_corpus,
)
from bertzoo.text.tokenizer import Tokenizer

COPIED_AT_ONCE = 2**24  # bytes


def parts_folder(directory: str | Path) -> Path:
    """Where the parts of a corpus directory lie until they are joined."""
    directory = Path(directory)
    return directory.with_name(f"{directory.name}.parts")


def prepare_part(
    documents: Documents,
    tokenizer: Tokenizer,
    directory: str | Path,
    part: tuple[int, int],
    num_processes: int = 1,
    on_progress: Callable[[int, float], None] | None = None,
) -> Path:
    """Tokenizes a part of the files into a directory of its own, in the folder `parts_folder(directory)`.

    The files of a part follow one another in the order of the call, so that the joined corpus is the one that
    `prepare_corpus` makes, whatever the number of parts. A second call resumes an interrupted part, and leaves a
    finished one as it is.

    Args:
        documents: All files of the corpus; every part gets the same ones, in the same order.
        tokenizer: The tokenizer.
        directory: The directory of the joined corpus.
        part: (number, number of parts), the first part being 1.
        num_processes: Processes that tokenize.
        on_progress: As for `prepare_corpus`.

    Returns:
        The directory of the part.

    Raises:
        ValueError: A source is not a file, or the part can't be written.
    """
    number, total = part
    folder = parts_folder(directory) / f"{number}-of-{total}"
    notes = {"part": number, "parts": total, "files": _fingerprint(documents, tokenizer)}
    recover_interrupted_save(folder)
    if _is_finished(folder, notes):
        return folder
    own = Documents(_select_files(documents.sources, number, total), documents.column, documents.lines)
    write_corpus(own, tokenizer, folder, num_processes, on_progress, part_notes=notes)
    return folder


def join_parts(documents: Documents, tokenizer: Tokenizer, directory: str | Path) -> TokenCorpus:
    """Joins the parts of a corpus, which `prepare_part` made, and removes them.

    The tokens are copied to one file, which is memory-mapped in training as that of any corpus.

    Args:
        documents: All files of the corpus, as for `prepare_part`.
        tokenizer: The tokenizer.
        directory: The directory to write.

    Raises:
        ValueError: Parts are missing, belong to other files or another tokenizer, or hold no document.
    """
    directory, parent = Path(directory), parts_folder(directory)
    folders = sorted(parent.glob("[1-9]*-of-*"), key=lambda path: int(path.name.partition("-")[0]))
    totals = {path.name.rpartition("-")[2] for path in folders}
    if len(totals) != 1:
        found = ", ".join(path.name for path in folders) or "no part"
        raise ValueError(f"{parent} must hold the parts of one division. Received: {found}. Remove what is left over.")
    total, files = int(totals.pop()), _fingerprint(documents, tokenizer)
    folders = [parent / f"{number}-of-{total}" for number in range(1, total + 1)]
    for number, folder in enumerate(folders, start=1):
        recover_interrupted_save(folder)
        if not _is_finished(folder, {"part": number, "parts": total, "files": files}):
            raise ValueError(
                f"{folder} must be a finished part of these files with this tokenizer: make it with --part "
                f"{number}/{total}, or remove {parent} to begin anew."
            )
    _write_joined(folders, directory)
    shutil.rmtree(parent)
    return TokenCorpus.open(directory)


def _write_joined(folders: list[Path], directory: Path) -> None:
    counts = [_read_counts(folder) for folder in folders]
    tokens, documents = (sum(count[name] for count in counts) for name in ("tokens", "documents"))
    if not tokens:
        raise ValueError("expected texts. Received: files without a document.")
    before = accumulate((count["tokens"] for count in counts), initial=0)
    ends = [np.load(folder / "documents.npy")[1:] + first for folder, first in zip(folders, before)]
    special = {COUNTS, "tokens.npy", "documents.npy"}
    write_preset(
        directory,
        {
            **{path.name: path.read_bytes() for path in folders[0].iterdir() if path.name not in special},
            COUNTS: json_line({"tokens": tokens, "documents": documents}),
            "tokens.npy": partial(_copy_tokens, folders, tokens),
            "documents.npy": partial(save_array, np.concatenate([[0], *ends])),
        },
    )


def _copy_tokens(folders: list[Path], count: int, path: Path) -> None:
    with open(path, "wb") as out:
        out.write(token_file_header(np.load(folders[0] / "tokens.npy").dtype, count))
        for folder in folders:
            with open(folder / "tokens.npy", "rb") as tokens:
                tokens.seek(HEADER_BYTES)
                shutil.copyfileobj(tokens, out, COPIED_AT_ONCE)


def _select_files(files: list[Path], number: int, total: int) -> list[Path]:
    """The files whose middle byte lies in this part of the bytes of all."""
    sizes = [file.stat().st_size for file in files]
    ends = list(accumulate(sizes))
    parts = [min(total - 1, (2 * end - size) * total // max(1, 2 * ends[-1])) for size, end in zip(sizes, ends)]
    return [file for file, part in zip(files, parts) if part == number - 1]


def _fingerprint(documents: Documents, tokenizer: Tokenizer) -> str:
    """Identifies files, whatever folder they lie in on this machine, and what is made of them."""
    if not all(isinstance(source, Path) for source in documents.sources):
        raise ValueError("a corpus in parts is made of files. Received: other sources.")
    files = [(path.name, path.stat().st_size) for path in documents.sources]
    digest = hashlib.sha256(json.dumps([files, documents.column, documents.lines]).encode())
    for name, content in sorted(tokenizer.file_contents().items()):
        digest.update(name.encode() + content)
    return digest.hexdigest()


def _read_counts(folder: Path) -> dict[str, Any]:
    path = folder / COUNTS
    return json.loads(path.read_text()) if path.is_file() else {}


def _is_finished(folder: Path, notes: dict[str, Any]) -> bool:
    return notes.items() <= _read_counts(folder).items()
