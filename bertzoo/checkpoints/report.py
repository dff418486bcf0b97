"""What a load did, in a few lines."""

from dataclasses import dataclass, field


@dataclass
class LoadReport:
    """What was loaded, what was newly initialised, and what in the file was not used."""

    source: str
    loaded: int = 0
    new: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.loaded} tensors loaded"]
        if self.new:
            lines.append(f"  newly initialised, to be trained: {_some(self.new)}")
        if self.unused:
            lines.append(f"  in the file, not used here: {_some(self.unused)}")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


def _some(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
