"""Tensors by name that are read on demand, whatever the format of the file."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.torch_pickle import LazyTensor


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that is read on demand: safetensors' name of its type, its shape, and the function that reads it."""

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


class LazyTensors(Mapping[str, np.ndarray]):
    """Tensors by name; `tensors[name]` reads that one alone, bf16 as `ml_dtypes.bfloat16`.

    A context manager: safetensors files stay mapped until it is closed.
    """

    def __init__(self, entries: Mapping[str, StoredTensor | LazyTensor], files: ExitStack | None = None):
        self._entries = dict(entries)
        self._files = files or ExitStack()

    def __getitem__(self, name: str) -> np.ndarray:
        return self._entries[name].read()

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def renamed(self, new_to_old: Mapping[str, str]) -> "LazyTensors":
        """The same tensors under other names, {new: old}."""
        return LazyTensors({new: self._entries[old] for new, old in new_to_old.items()})

    def with_joined(self, groups: Mapping[str, tuple[str, ...]]) -> "LazyTensors":
        """Further names, each for the tensors of a group, one below the other."""
        return LazyTensors({**self._entries, **{name: self._joined(group) for name, group in groups.items()}})

    def _joined(self, names: tuple[str, ...]) -> StoredTensor:
        parts = [self._entries[name] for name in names]
        shapes = [part.shape for part in parts]
        if len({part.dtype for part in parts}) > 1 or len({shape[1:] for shape in shapes}) > 1 or () in shapes:
            raise CheckpointError(f"{', '.join(names)} belong together, but their types or shapes {shapes} differ.")
        shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        return StoredTensor(parts[0].dtype, shape, lambda: np.concatenate([part.read() for part in parts]))

    def safetensors_dtype(self, name: str) -> str:
        """safetensors' name of the type: "F32", "F16", "BF16", "I64", …"""
        return self._entries[name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
