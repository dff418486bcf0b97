"""Writes a preset as a whole or not at all, and puts right what a killed process left.

The new directory is made beside the old one, the old one is renamed to a backup, the new one takes its name, the backup
goes. A process killed between the two renames leaves no directory but a whole backup, which `recover` puts back.

A directory that cannot be renamed, because it is a mount point, holds one (a container's volume) or lies in a folder
that is not ours to write, stays: its files are written under other names in it and renamed one by one.
"""

import errno
import fnmatch
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.siblings import is_abandoned, sibling, siblings, stamp

# Weights that would otherwise stay beside the new ones and be read in their place.
SUPERSEDED = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "pytorch_model*.bin.index.json")

DEFAULT_SHARD_BYTES = 5 * 1000**3

_BUSY = "{} is being replaced by other processes all the time; save to another place."

_ATTEMPTS = 100
# What makes a directory a preset, an adapter or a state: gone while its other files are replaced one by one.
_ENTRIES = ("config.json", "adapter_config.json", "state.json")


def write_preset(directory: Path, files: Mapping[str, bytes | Callable[[Path], None]]) -> None:
    """Replaces a directory by one that holds `files` (relative name -> bytes, or a function that writes the path).

    What else the old directory held is kept, weights of other names excepted. Concurrent writers each write whole
    directories and the last one stays. Where a directory has to stay (see above), its files are replaced one by one.
    Raises CheckpointError, with the old directory as it was, where the disk is full, the folder cannot be written or
    replaced, or a name leads out of the directory.
    """
    directory = _real(directory)
    _check_target(directory, files)
    try:
        if _must_stay(directory):
            _write_into(directory, files)
        else:
            _swap(directory, files)
    except (OSError, CheckpointError) as error:
        reason = str(error).rstrip(".")
        raise CheckpointError(
            f"{directory} could not be saved: {reason}. "
            f"What was there before is unchanged; save elsewhere, or free space."
        ) from error


def check_place(directory: Path) -> None:
    """Tries whether `write_preset` could write there, so that nobody trains for hours in vain.

    Raises:
        CheckpointError: It could not.
    """
    directory = _real(directory)
    _check_target(directory, {})
    if _must_stay(directory):
        trial = sibling(directory / "preset", "saving")
    else:
        beside = next(path for path in (directory, *directory.parents) if path.parent.exists())
        if not beside.parent.is_dir():
            raise CheckpointError(f"{directory} can't be written: {beside.parent} is a file.")
        trial = sibling(beside, "saving")
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        reason = f"{trial.parent}: {error.strerror}"
        raise CheckpointError(f"{directory} can't be written ({reason}). Name another directory.") from error


def _swap(directory: Path, files: Mapping[str, bytes | Callable[[Path], None]]) -> None:
    temporary = sibling(directory, "saving")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        _fill(temporary, files)
        _carry_over(directory, temporary, files)
        _sync_folders(temporary)
        _replace(directory, temporary)
    finally:
        _discard(directory, temporary)


def _write_into(directory: Path, files: Mapping[str, bytes | Callable[[Path], None]]) -> None:
    inside = directory / "preset"
    for path in siblings(inside, "saving"):
        if is_abandoned(path):
            _discard(inside, path)
    temporary = sibling(inside, "saving")
    try:
        temporary.mkdir()
        _fill(temporary, files)
        # Killed from here on, a process leaves no preset rather than one of old and new files.
        for name in _ENTRIES:
            if name in files:
                (directory / name).unlink(missing_ok=True)
        if any(_is_weights(name) for name in files):
            for path in directory.iterdir():
                if _is_weights(path.name):
                    path.unlink()
        for name in sorted(files, key=lambda name: name in _ENTRIES):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary / name, directory / name)
        _sync_folders(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _must_stay(directory: Path) -> bool:
    """Whether a directory cannot or must not be renamed."""
    return directory.is_dir() and (_holds_mount(directory) or not os.access(directory.parent, os.W_OK))


def _holds_mount(folder: Path) -> bool:
    """Whether something is mounted on a folder or inside it."""
    known = [Path(point) for point in _mount_points()]
    if any(point == folder or folder in point.parents for point in known):
        return True
    return any(os.path.ismount(path) for path in _folders(folder))


def _mount_points() -> list[str]:
    # Python tells a mount by its device, which a folder that is mounted elsewhere on its own file system shares.
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return []
    return [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split(" ")[4]) for line in lines]


def recover(directory: Path) -> None:
    """Puts back a directory whose replacement was cut short, and clears what dead writers left beside it.

    Call it before reading or writing. Raises CheckpointError where a backup exists and cannot be put back.
    """
    directory = _real(directory)
    backups = sorted(siblings(directory, "backup"), key=stamp)
    while backups and not directory.exists():
        backup = backups.pop()
        try:
            os.rename(backup, directory)
        except FileNotFoundError:  # another process was faster
            continue
        except OSError as error:
            if not directory.exists():
                raise CheckpointError(
                    f"{directory} was being replaced, and its backup {backup} cannot be put back: {error}."
                ) from error
    for kind in ("saving", "backup", "discarded"):
        for path in siblings(directory, kind):
            if is_abandoned(path) and (kind != "backup" or directory.exists()):
                _discard(directory, path)


def save_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file (metadata {"format": "pt"} unless given) and waits until the disk has it.

    Arrays of `ml_dtypes.bfloat16` become BF16. Raises CheckpointError where it cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # safetensors writes the memory as it lies, so a transposed view would be written in the wrong order.
    dense = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    try:
        save_file(dense, path, metadata=dict(metadata or {"format": "pt"}))
        Path(path).chmod(0o666 & ~_umask())  # the library lets its owner alone read it
        _sync(Path(path))
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} could not be written: {error}.") from error


def tensor_files(
    tensors: Mapping[str, np.ndarray], max_shard_bytes: int = DEFAULT_SHARD_BYTES
) -> dict[str, Callable[[Path], None]]:
    """The weight files of a preset, for `write_preset`: `model.safetensors`, or shards of at most `max_shard_bytes`
    (a larger tensor has a shard to itself) with an index, named as Hugging Face names them.
    """
    shards: list[dict[str, np.ndarray]] = [{}]
    room = max_shard_bytes
    for name, tensor in tensors.items():
        if shards[-1] and tensor.nbytes > room:
            shards.append({})
            room = max_shard_bytes
        shards[-1][name] = tensor
        room -= tensor.nbytes
    if len(shards) == 1:
        return {"model.safetensors": partial(save_tensors, tensors=shards[0])}
    names = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {name: file for file, shard in zip(names, shards, strict=True) for name in shard},
    }
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    writers = {file: partial(save_tensors, tensors=shard) for file, shard in zip(names, shards, strict=True)}
    return {**writers, "model.safetensors.index.json": partial(_write_text, text=text)}


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _check_target(directory: Path, files: Mapping[str, object]) -> None:
    # One look: another writer may be between taking it away and putting a new one in its place.
    status = _status(directory)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise CheckpointError(f"{directory} is a file; a directory to save into is expected.")
    here = Path.cwd()
    if directory == here or directory in here.parents:
        raise CheckpointError(
            f"{directory} is or holds the current directory and cannot be replaced; name a folder in it."
        )
    for name in files:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or set(name) & set("\\:\0"):
            raise CheckpointError(f"A preset cannot hold a file named {name!r}; a relative name inside it is expected.")


def _fill(folder: Path, files: Mapping[str, bytes | Callable[[Path], None]]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        else:
            path.write_bytes(content)
        _sync(path)


def _carry_over(old: Path, new: Path, files: Mapping[str, object]) -> None:
    for _ in range(_ATTEMPTS):
        recover(old)
        before = _inode(old)
        if before is None:
            if siblings(old, "backup") or old.exists():  # another writer is between its two renames, or was
                continue
            return
        try:
            shutil.copytree(
                old, new, symlinks=True, ignore=_left_behind(old, files), copy_function=link, dirs_exist_ok=True
            )
            return
        except (shutil.Error, FileNotFoundError):
            if _inode(old) == before:  # otherwise another writer replaced it meanwhile
                raise
    raise CheckpointError(_BUSY.format(old))


def _left_behind(old: Path, files: Mapping[str, object]) -> Callable[[str, list[str]], set[str]]:
    has_weights = any(_is_weights(name) for name in files)

    def ignore(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(old)
        replaced = {name for name in names if (inside / name).as_posix() in files}
        stale = {name for name in names if has_weights and inside == Path() and _is_weights(name)}
        return replaced | stale

    return ignore


def _inode(path: Path) -> int | None:
    status = _status(path)
    return None if status is None else status.st_ino


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_weights(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in SUPERSEDED)


def link(source: str | Path, target: str | Path) -> None:
    """Gives a file a second name; on a file system without hard links, a copy that the disk has."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:  # from an earlier attempt
        return
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)
        _sync(Path(target))


def _replace(directory: Path, temporary: Path) -> None:
    """The two renames. Another writer may put its directory in place between them; then ours moves that one away."""
    backups: list[Path] = []
    try:
        for _ in range(_ATTEMPTS):
            backup = sibling(directory, "backup")
            try:
                os.rename(directory, backup)
                backups.append(backup)
            except FileNotFoundError:
                pass
            try:
                os.rename(temporary, directory)
                _sync(directory.parent)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        raise CheckpointError(_BUSY.format(directory))
    finally:
        if not directory.exists():
            recover(directory)
        for backup in backups:
            _discard(directory, backup)


def _discard(directory: Path, path: Path) -> None:
    if _holds_mount(path):  # mounted meanwhile: what is in it is not ours to delete
        return
    # Renamed first: a backup that is half deleted must never be taken for a whole one.
    discarded = sibling(directory, "discarded")
    try:
        os.rename(path, discarded)
    except OSError:
        return
    shutil.rmtree(discarded, ignore_errors=True)


def _real(directory: Path) -> Path:
    # A link to a directory stays a link: what it points to is replaced.
    return Path(os.path.realpath(directory))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # Windows cannot open a folder
        return
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folders(folder: Path) -> None:
    for path in _folders(folder):
        _sync(path)


def _folders(folder: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(folder):
        yield Path(path)
