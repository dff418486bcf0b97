"""The vectors of a long list of texts in blocks, which several processes compute and one joins.

A block is always the same rows, encoded by themselves. Its bytes therefore do not depend on which process computed it,
on how many processes there were, or on what was computed before.
"""

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.cli.paths import write_atomically

BLOCK_ROWS = 4096
NOTES = "blocks.json"


class VectorBlocks:
    """The blocks of an output file, in a folder beside it.

    Args:
        out: The .npy file of all vectors.
        texts: The texts, a row of the file each.
        settings: What else the vectors depend on, as JSON.

    Raises:
        ValueError: The folder holds blocks of other texts or settings.
    """

    def __init__(self, out: Path, texts: Sequence[str], settings: Mapping[str, Any]):
        self.out, self.texts = out, texts
        self.folder = out.with_name(f"{out.name}.parts")
        digest = hashlib.sha256()
        for text in texts:
            digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        self._notes = {**settings, "rows": len(texts), "texts": digest.hexdigest(), "block_rows": BLOCK_ROWS}
        self._check()

    def missing(self, part: tuple[int, int] = (1, 1)) -> list[int]:
        """The first rows of the blocks that a part, (number, number of parts), still has to compute."""
        number, total = part
        firsts = range(0, len(self.texts), BLOCK_ROWS)[number - 1 :: total]
        return [first for first in firsts if not self._path(first).exists()]

    def compute(self, firsts: Iterable[int], encode: Callable[[Sequence[str]], np.ndarray]) -> None:
        """Computes the blocks that begin at these rows; each file is written completely or not at all.

        Raises:
            ValueError: Another process began to write blocks of other texts or settings.
        """
        for first in firsts:
            buffer = io.BytesIO()
            np.save(buffer, encode(self.texts[first : first + BLOCK_ROWS]))
            self.folder.mkdir(exist_ok=True)
            if not (self.folder / NOTES).exists():
                write_atomically(self.folder / NOTES, (json.dumps(self._notes) + "\n").encode())
            self._check()
            write_atomically(self._path(first), buffer.getvalue())

    def join(self) -> tuple[int, int]:
        """Joins all blocks to the output file, never holding more than one of them, and removes them.

        Returns:
            The shape of the vectors, (rows, width).
        """
        rows, width = len(self.texts), np.load(self._path(0), mmap_mode="r").shape[1]

        def write(path: Path) -> None:
            vectors = np.lib.format.open_memmap(path, "w+", np.float32, (rows, width))
            for first in range(0, rows, BLOCK_ROWS):
                vectors[first : first + BLOCK_ROWS] = np.load(self._path(first))
            vectors.flush()

        write_atomically(self.out, write)
        shutil.rmtree(self.folder)
        return rows, width

    def _check(self) -> None:
        if not (self.folder / NOTES).exists():
            return
        before = json.loads((self.folder / NOTES).read_text())
        changed = [name for name, value in self._notes.items() if before.get(name) != value]
        if changed:
            raise ValueError(
                f"{self.folder} must hold blocks of the same texts, model and settings. Received: another "
                f"{', '.join(changed)}. Repeat the earlier command, or remove the folder."
            )

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:012}.npy"
