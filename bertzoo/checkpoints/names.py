"""Between our weights and Hugging Face's tensors: one table per family, read in both directions.

A pair (ours, theirs) may stand for many: `{i}` runs over the layers, and a list in braces in their name, such as
`{query,key,value}`, names the tensors that we keep fused in one weight, side by side on its last axis. Kernels (names
that end in "kernel") are transposed, since PyTorch keeps (out, in); all else is taken as it is.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

# What DataParallel, Lightning and torch.compile put before the names of a model.
_WRAPPERS = ("module.", "_orig_mod.", "model.")
_INDEX = re.compile(r"\{([a-z])\}")
_FUSED = re.compile(r"\{([^{}]*,[^{}]*)\}")


@dataclass(frozen=True)
class Entry:
    """One weight of ours and the tensors, one or more, that hold it in the file."""

    ours: str
    theirs: tuple[str, ...]

    @property
    def transposed(self) -> bool:
        return self.ours.endswith("kernel")

    def join(self, tensors: Iterable[np.ndarray]) -> np.ndarray:
        """Their tensors -> our weight."""
        parts = [tensor.T if self.transposed else tensor for tensor in tensors]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    def split(self, weight: np.ndarray) -> dict[str, np.ndarray]:
        """Our weight -> their tensors."""
        parts = np.split(weight, len(self.theirs), axis=-1)
        return {
            name: np.ascontiguousarray(part.T if self.transposed else part) for name, part in zip(self.theirs, parts)
        }


def expand(names: Iterable[tuple[str, str]], counts: Mapping[str, int]) -> list[Entry]:
    """The entries of a table; `counts` says how far each index runs."""
    entries = []
    for ours, theirs in names:
        letters = _INDEX.findall(ours)
        for values in itertools.product(*(range(counts[letter]) for letter in letters)):
            mine, yours = ours, theirs
            for letter, value in zip(letters, values):
                mine, yours = mine.replace(f"{{{letter}}}", str(value)), yours.replace(f"{{{letter}}}", str(value))
            entries.append(Entry(mine, _parts(yours)))
    return entries


def _parts(theirs: str) -> tuple[str, ...]:
    fused = _FUSED.search(theirs)
    if not fused:
        return (theirs,)
    return tuple(theirs[: fused.start()] + part + theirs[fused.end() :] for part in fused.group(1).split(","))


def canonical(*prefixes: str) -> Callable[[str], str]:
    """Maps any spelling of a tensor's name that files use to the one in the tables: without prefix, weight and bias."""

    def rename(name: str) -> str:
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
        return next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)

    return rename


def wrapper_of(names: Iterable[str], prefix: str) -> str:
    """What all names begin with because the model was part of another object; "" where they don't.

    A family's own prefix, which may be one of the same words, stays.
    """
    names, found = list(names), ""
    while wrapper := next((w for w in _WRAPPERS if names and all(name.startswith(found + w) for name in names)), None):
        if wrapper == prefix and not any(name.startswith(found + wrapper + prefix) for name in names):
            break
        found += wrapper
    return found
