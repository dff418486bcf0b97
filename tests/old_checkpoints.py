"""Checkpoints of transformers' TensorFlow and Flax classes, which checkpoints/old_formats/write.py has written."""

import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).parent / "checkpoints" / "old_formats" / "old_checkpoints.tar.xz"


def unpack(directory: Path) -> Path:
    """Unpacks all of them into a directory, one folder each, and returns it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory
