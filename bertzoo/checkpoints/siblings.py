"""The names of what a writer puts beside a directory while it replaces it, and whose writer is gone."""

import os
import re
import secrets
import socket
import time
from pathlib import Path

_STALE_SECONDS = 24 * 3600
_SIBLING = re.compile(r"\.(.+)\.(saving|backup|discarded)-(\d{1,20})-(\w+)-(\d{1,10})-[0-9a-f]{8}", re.DOTALL)


def sibling(directory: Path, kind: str) -> Path:
    """A fresh name beside the directory: .NAME.KIND-NANOSECONDS-HOST-PID-RANDOM."""
    owner = f"{_host()}-{os.getpid()}"
    return directory.with_name(f".{directory.name}.{kind}-{time.time_ns()}-{owner}-{secrets.token_hex(4)}")


def siblings(directory: Path, kind: str) -> list[Path]:
    """The siblings of a directory of this kind, whoever made them."""
    try:
        marked = [(path, _mark(path)) for path in directory.parent.iterdir()]
    except OSError:
        return []
    return [path for path, mark in marked if mark and mark[:2] == (directory.name, kind)]


def _mark(path: Path) -> tuple[str, str, int, str, int] | None:
    """(directory, kind, nanoseconds, host, pid) of a name that `sibling` gave."""
    match = _SIBLING.fullmatch(path.name)
    return match and (match[1], match[2], int(match[3]), match[4], int(match[5]))


def stamp(path: Path) -> int:
    """When a sibling was made, in nanoseconds."""
    return _mark(path)[2]


def _host() -> str:
    return "".join(letter for letter in socket.gethostname() if letter.isalnum()) or "host"


def is_abandoned(path: Path) -> bool:
    """Whether the writer is gone. A writer on another machine cannot be asked, and is given a day."""
    _, _, stamp, host, pid = _mark(path)
    if time.time_ns() - stamp > _STALE_SECONDS * 10**9:
        return True
    if host != _host() or os.name == "nt":  # on Windows os.kill would end the process
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # alive, and another user's
        return False
    return False
