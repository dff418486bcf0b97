"""Replaces directories atomically, and restores them after a process was killed while it wrote.

The new directory is made beside the old one; the old one is renamed to a backup, the new one gets its name, and the
backup is deleted. A process killed between the two renames leaves a whole backup, which `recover_interrupted_save` puts
back. One process writes a directory at a time; any number may read it meanwhile.

A directory that cannot be renamed, because it is a mount point, contains one (a container's volume) or is in a folder
that is not writable, stays: its files are written into a folder inside it and renamed one by one.
"""

import errno
import fnmatch
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from bertzoo.checkpoints.errors import CheckpointError

# Weights that would otherwise stay beside the new ones and be read in their place.
_OTHER_WEIGHTS = ("pytorch_model*.bin", "tf_model*.h5", "flax_model*.msgpack")
_WEIGHTS = tuple(name + end for name in ("*.safetensors", *_OTHER_WEIGHTS) for end in ("", ".index.json"))

# What makes a directory a preset, an adapter or a state: gone while its other files are replaced one by one.
_ENTRIES = ("config.json", "gliner_config.json", "adapter_config.json", "state.json")
_ATTEMPTS = 10

Content = bytes | Callable[[Path], None]


def write_preset(directory: Path, files: Mapping[str, Content]) -> None:
    """Replaces a directory by one that holds `files`; what else the old one held is kept, except other weights.

    Args:
        directory: Where to; made if need be.
        files: Relative name -> bytes, or a function that writes the file at the path that it gets.

    Raises:
        CheckpointError: The disk is full, the folder cannot be written or replaced, or a name leads out of the
            directory. The old directory is then unchanged.
    """
    directory = _checked(directory)
    for name in files:
        names = PurePosixPath(name).parts
        if not names or name.startswith("/") or ".." in names or set(name) & set("\\:\0"):
            raise CheckpointError(f"A preset cannot hold a file named {name!r}; a relative name inside it is expected.")
    try:
        (_write_into if _must_stay(directory) else _swap)(directory, files)
    except (OSError, CheckpointError) as error:
        raise CheckpointError(
            f"{directory} could not be saved: {str(error).rstrip('.')}. "
            "What was there before is unchanged; save elsewhere, or free space."
        ) from error


def check_writable(directory: Path) -> None:
    """Tries whether `write_preset` could write a directory, before hours of training depend on it.

    Raises:
        CheckpointError: It could not.
    """
    directory = _checked(directory)
    if _must_stay(directory):
        trial = directory / ".saving"
    else:
        trial = _sibling(next(path for path in (directory, *directory.parents) if path.parent.exists()), "saving")
    try:
        trial.mkdir(exist_ok=True)
        with suppress(OSError):  # what a killed process left in it is cleared when the directory is written
            trial.rmdir()
    except OSError as error:
        reason = f"{trial.parent}: {error.strerror}"
        raise CheckpointError(f"{directory} can't be written ({reason}). Name another directory.") from error


def recover_interrupted_save(directory: Path) -> None:
    """Puts back a directory whose replacement was cut short. Call it before reading or writing.

    Raises:
        CheckpointError: There is a backup that cannot be put back.
    """
    directory = Path(os.path.realpath(directory))
    backup = _sibling(directory, "backup")
    if not os.path.isdir(backup):
        return
    if directory.exists():
        _discard(backup)
        return
    try:
        os.rename(backup, directory)
    except OSError as error:
        if not directory.exists():  # otherwise another process was faster
            raise CheckpointError(
                f"{directory} was being replaced, and its backup {backup} cannot be put back: {error}."
            ) from error


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Gives a file a second name; where the file system has no hard links, copies it and waits for the disk."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)
        fsync(Path(target))


def fsync(path: Path) -> None:
    """Waits until the disk has a file or a folder."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open a folder
        return
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _swap(directory: Path, files: Mapping[str, Content]) -> None:
    temporary = _sibling(directory, "saving")
    has_weights = any(map(is_weight_file, files))

    def ignore(folder: str, names: list[str]) -> set[str]:
        """What the new files replace."""
        inside = Path(folder).relative_to(directory)
        replaced = {name for name in names if (inside / name).as_posix() in files}
        return replaced | {name for name in names if has_weights and inside == Path() and is_weight_file(name)}

    recover_interrupted_save(directory)
    _discard(temporary)
    try:
        temporary.mkdir(parents=True)
        _fill(temporary, files)
        if directory.exists():
            shutil.copytree(directory, temporary, True, ignore, link_or_copy, dirs_exist_ok=True)
        _sync_folders(temporary)
        _rename(temporary, directory)
    finally:
        _discard(temporary)


def _rename(temporary: Path, directory: Path) -> None:
    try:
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                os.rename(directory, _sibling(directory, "backup"))
            try:
                os.rename(temporary, directory)
                fsync(directory.parent)
                return
            except OSError as error:
                # A reader that found no directory between the two renames has put the backup back.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        raise CheckpointError(f"{directory} is being replaced by other processes all the time")
    finally:
        recover_interrupted_save(directory)


def _write_into(directory: Path, files: Mapping[str, Content]) -> None:
    temporary = directory / ".saving"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        _fill(temporary, files)
        # Killed from here on, a process leaves no preset rather than one of old and new files.
        for name in _ENTRIES:
            if name in files:
                (directory / name).unlink(missing_ok=True)
        if any(map(is_weight_file, files)):
            for path in directory.iterdir():
                if is_weight_file(path.name):
                    path.unlink()
        for name in sorted(files, key=lambda name: name in _ENTRIES):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary / name, directory / name)
        _sync_folders(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, Content]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        else:
            path.write_bytes(content)
        fsync(path)


def is_weight_file(name: str) -> bool:
    """Whether a file of this name holds weights, or says which files do."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _WEIGHTS)


def _checked(directory: Path) -> Path:
    """The real path of a directory that may be replaced: a link to it stays a link."""
    directory, here = Path(os.path.realpath(directory)), Path.cwd()
    if directory.exists() and not directory.is_dir():
        raise CheckpointError(f"{directory} is a file; a directory to save into is expected.")
    if directory == here or directory in here.parents:
        raise CheckpointError(
            f"{directory} is or holds the current directory and cannot be replaced; name a folder in it."
        )
    return directory


def _must_stay(directory: Path) -> bool:
    """Whether a directory cannot or must not be renamed."""
    return directory.is_dir() and (_holds_mount(directory) or not os.access(directory.parent, os.W_OK))


def _holds_mount(folder: Path) -> bool:
    """Whether something is mounted on a folder or inside it."""
    # Python recognises a mount by its device, which a folder that is mounted elsewhere on its own file system shares.
    with suppress(OSError):  # not Linux
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
            point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split(" ")[4]))
            if point == folder or folder in point.parents:
                return True
    return any(os.path.ismount(path) for path, _, _ in os.walk(folder))


def _sibling(directory: Path, kind: str) -> Path:
    return directory.with_name(f".{directory.name}.{kind}")


def _discard(path: Path) -> None:
    """Deletes one of the siblings, unless something was mounted in it meanwhile, which must not be deleted."""
    if not os.path.isdir(path) or _holds_mount(path):
        return
    # Renamed first: a backup that is half deleted must never be taken for a whole one.
    discarded = path.with_suffix(".discarded")
    shutil.rmtree(discarded, ignore_errors=True)
    with suppress(OSError):
        os.rename(path, discarded)
    shutil.rmtree(discarded, ignore_errors=True)


def _sync_folders(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        fsync(Path(path))
