"""The manifest of an index: which segments it has, and which of their documents are deleted.

A change writes its files under new names and then renames a new manifest over the old one. Whoever opens the index
finds the state before or after, whatever happened to the writer in between.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from bertzoo.checkpoints.saving import fsync

FILE, LOCK = "manifest.json", "lock"
FORMAT = 1
_FIELD = re.compile(r"(?!documents$|document_hashes$|deleted_\d+$)\w+")  # others would take names of files
_SEGMENT, _DELETIONS = re.compile(r"segment_\d{6,}"), re.compile(r"deleted_\d{6,}\.npy")
Opened = TypeVar("Opened")


@dataclass(frozen=True)
class Segment:
    """A folder of documents, written once.

    Attributes:
        name: The folder.
        documents: How many documents it holds.
        deletions: The file in the folder that marks deleted documents, and how many it marks.
    """

    name: str
    documents: int
    deletions: str | None = None
    deleted: int = 0

    def __post_init__(self) -> None:
        if not _SEGMENT.fullmatch(self.name) or not (self.deletions is None or _DELETIONS.fullmatch(self.deletions)):
            raise ValueError(
                f"segments must be named as {segment_name(1)}. Received: {self.name!r}, {self.deletions!r}."
            )


@dataclass(frozen=True)
class Manifest:
    """The state of an index.

    Attributes:
        fields: Name -> description, see `Field.describe`.
        segments: The segments.
        changes: How many changes there were; names of files are made of it.
        metadata: What the user of the index keeps with this state.
    """

    fields: dict[str, dict[str, Any]]
    segments: tuple[Segment, ...] = ()
    changes: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if wrong := [name for name in self.fields if not _FIELD.fullmatch(name)]:
            raise ValueError(
                "names of fields must be letters, digits and underscores, and not those of the index's own files. "
                f"Received: {wrong[0]!r}."
            )


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of an index; None where there is no index.

    Raises:
        ValueError: The file is damaged, or of a later version.
    """
    try:
        content = json.loads((directory / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{directory / FILE} can't be used: {error}.") from error
    received = content.pop("format", None) if isinstance(content, dict) else None
    if received != FORMAT:
        raise ValueError(f"{directory} must be of format {FORMAT}. Received: {received!r}. Make the index again.")
    try:
        fields = {name: dict(described) for name, described in content["fields"].items()}
        segments = tuple(Segment(**entry) for entry in content["segments"])
        return Manifest(**content | {"fields": fields, "segments": segments})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{directory / FILE} must be the manifest of an index. Received: a damaged one ({error!r}). "
            "Make the index again."
        ) from error


def open_consistently(directory: Path, open_segments: Callable[[Manifest], Opened]) -> tuple[Manifest, Opened]:
    """A manifest, and what a function opens of it: tried again where another process removed files meanwhile.

    Args:
        directory: The index.
        open_segments: Opens all files that it will ever need.

    Raises:
        FileNotFoundError: There is no index, or it lacks files.
    """
    while True:
        manifest = read_manifest(directory)
        if manifest is None:
            raise FileNotFoundError(f"{directory} must be an index. Received: a directory without {FILE}.")
        try:
            return manifest, open_segments(manifest)
        except FileNotFoundError:
            if read_manifest(directory) == manifest:
                raise


def check_is_empty(directory: Path) -> None:
    """Refuses a directory in which an index would be made among other files.

    Raises:
        ValueError: It holds files and no index.
    """
    others = sorted({path.name for path in directory.iterdir()} - {LOCK, f".{FILE}"})  # of a writer that was killed
    if others and read_manifest(directory) is None:  # read after the listing: another process may have made it
        raise ValueError(
            f"{directory} must be empty or hold an index. Received: a directory with {', '.join(others[:5])}. Name "
            "another directory."
        )


def lock(directory: Path) -> FileLock:
    """A context in which no other process writes; another waits. The lock of a process that dies is free."""
    return FileLock(directory / LOCK)


def publish(directory: Path, manifest: Manifest) -> None:
    """Publishes a state: syncs its new files, then replaces the manifest in one rename. Call within `lock`.

    Args:
        directory: The index.
        manifest: The state; its files are written. It is stored as one change later, so that the next has new names.
    """
    new = segment_name(manifest.changes), deletions_name(manifest.changes)
    manifest = replace(manifest, changes=manifest.changes + 1)
    for segment in manifest.segments:
        folder = directory / segment.name
        if segment.name == new[0]:
            for path in folder.iterdir():
                fsync(path)
        if segment.deletions == new[1]:
            fsync(folder / new[1])
        if segment.name == new[0] or segment.deletions == new[1]:
            fsync(folder)
    temporary = directory / f".{FILE}"
    temporary.write_text(json.dumps({"format": FORMAT, **asdict(manifest)}), "utf-8")
    fsync(temporary)
    os.replace(temporary, directory / FILE)
    fsync(directory)


def segment_name(changes: int) -> str:
    """The folder of the segment that a change writes."""
    return f"segment_{changes:06}"


def deletions_name(changes: int) -> str:
    """The file of deletions that a change writes."""
    return f"deleted_{changes:06}.npy"


def remove_leftovers(directory: Path) -> None:
    """Removes folders and files that the manifest does not name: of merged segments, and what a killed writer left.
    Call within `lock`."""
    manifest = read_manifest(directory)
    if manifest is None:
        return
    named = {segment.name: segment.deletions for segment in manifest.segments}
    for folder in directory.iterdir():
        if not _SEGMENT.fullmatch(folder.name):
            continue
        if folder.name not in named:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        for file in folder.iterdir():
            if _DELETIONS.fullmatch(file.name) and file.name != named[folder.name]:
                with suppress(OSError):  # open in another process on Windows
                    file.unlink()
