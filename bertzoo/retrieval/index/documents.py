"""The ids and payloads of a segment's documents, on disk: looked up by row or by id without reading all."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LINES, OFFSETS, HASHES = "documents.jsonl", "documents.npy", "document_hashes.npy"


class Documents:
    """The documents of a segment.

    Args:
        folder: The segment's folder.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r")
        self._lines = np.memmap(folder / LINES, np.uint8, "r") if self._offsets[-1] else np.zeros(0, np.uint8)
        self._hashes, self._rows = np.load(folder / HASHES, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> tuple[str, Any]:
        """The id and the payload of a document."""
        line = self._lines[self._offsets[row] : self._offsets[row + 1]].tobytes()
        try:
            return json.loads(line)
        except ValueError as error:
            raise ValueError(
                f"{self._folder / LINES} must hold documents as JSON. Received: a damaged line {row + 1} ({error}). "
                "Make the index again."
            ) from error

    def find(self, ids: Sequence[str]) -> np.ndarray:
        """The rows of documents, int64 (n,); -1 for ids that the segment lacks.

        Args:
            ids: The ids.
        """
        wanted = hash_ids(ids)
        found = np.full(len(ids), -1, np.int64)
        begins = np.searchsorted(self._hashes, wanted)
        ends = np.searchsorted(self._hashes, wanted, "right")
        for i in np.flatnonzero(begins < ends).tolist():
            for place in range(begins[i], ends[i]):  # more than one where hashes are equal by chance
                row = int(self._rows[place])
                if self[row][0] == ids[i]:
                    found[i] = row
        return found


def write_documents(folder: Path, ids: Sequence[str], payloads: Sequence[Any]) -> None:
    """Writes the documents of a segment.

    Args:
        folder: The segment's folder.
        ids, payloads: Equally long.

    Raises:
        TypeError: A payload has no JSON form.
    """
    lengths = np.zeros(len(ids) + 1, np.int64)
    with open(folder / LINES, "wb") as file:
        for i, document in enumerate(zip(ids, payloads), start=1):
            lengths[i] = file.write(json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
    hashes = hash_ids(ids)
    order = np.argsort(hashes, kind="stable")
    np.save(folder / OFFSETS, np.cumsum(lengths))
    np.save(folder / HASHES, np.stack([hashes[order], order.astype(np.uint64)]))


def hash_ids(ids: Sequence[str]) -> np.ndarray:
    """uint64 (n,), the same in every process."""
    digests = b"".join(hashlib.blake2b(i.encode("utf-8", "surrogatepass"), digest_size=8).digest() for i in ids)
    return np.frombuffer(digests, np.uint64)
