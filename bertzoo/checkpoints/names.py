"""Between Keras weights and Hugging Face's tensors: one table per family, read in both directions.

A pair (Keras name, Hugging Face name) may stand for many: `{i}` runs over the layers, and a list in braces in the
second, such as `{query,key,value}`, names the tensors that are fused in one Keras weight, side by side on its last
axis; of `{q*g,k,v}` the first is g times as wide as the others. Kernels (names that end in "kernel") are transposed,
since PyTorch stores (out, in); all else has the same shape.
"""

import itertools
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bertzoo.checkpoints.lazy_tensors import LazyTensors

# What DataParallel, Lightning and torch.compile put before the names of a model.
_WRAPPERS = ("module.", "_orig_mod.", "model.")
_INDEX = re.compile(r"\{([a-z])\}")
_FUSED = re.compile(r"\{([^{}]*,[^{}]*)\}")

Names = tuple[tuple[str, str], ...]


class Family(Protocol):
    """What reading and writing files need to know of a family of encoders; see `bertzoo.models.family.Family`."""

    hf_name: str
    prefix: str
    former_prefixes: tuple[str, ...]
    names: Names
    alternative_names: Names
    computed_parts: tuple[str, ...]
    heads: Mapping[str, Any]

    @property
    def tensor_aliases(self) -> Mapping[str, str]: ...

    def head_tensor_names(self, config: Any, head_name: str) -> Names: ...

    def complete_config_from_tensors(self, config: Any, tensor_names: Container[str]) -> Any: ...

    def placeholder_counts(self, config: Any) -> dict[str, int]: ...

    def is_ignored_tensor(self, tensor_name: str) -> bool: ...


@dataclass(frozen=True)
class WeightMapping:
    """One Keras weight and the tensors, one or more, that hold it in the file, with their relative widths."""

    keras_name: str
    hf_names: tuple[str, ...]
    widths: tuple[int, ...] = (1,)

    @property
    def part_name(self) -> str:
        """The part of the model that the weight belongs to: "embeddings", "layer_0", "pooler", "classifier" …"""
        return self.keras_name.split("/")[0]

    @property
    def is_transposed(self) -> bool:
        return self.keras_name.endswith("kernel")

    def has_all_tensors(self, tensor_names: Container[str]) -> bool:
        """Whether all its tensors are among these."""
        return all(name in tensor_names for name in self.hf_names)

    def to_keras_weight(self, tensors: Iterable[np.ndarray]) -> np.ndarray:
        """The file's tensors -> the Keras weight."""
        arrays = [tensor.T if self.is_transposed else tensor for tensor in tensors]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)

    def to_file_tensors(self, weight: np.ndarray) -> dict[str, np.ndarray]:
        """The Keras weight -> the file's tensors."""
        unit = weight.shape[-1] // sum(self.widths)
        arrays = np.split(weight, np.cumsum(self.widths)[:-1] * unit, axis=-1)
        return {name: np.ascontiguousarray(a.T if self.is_transposed else a) for name, a in zip(self.hf_names, arrays)}


def expand_name_patterns(patterns: Iterable[tuple[str, str]], index_ranges: Mapping[str, int]) -> list[WeightMapping]:
    """The entries of a table; `index_ranges` gives the range of each index, and each relative width."""
    entries = []
    for keras_pattern, hf_pattern in patterns:
        letters = _INDEX.findall(keras_pattern)
        for values in itertools.product(*(range(index_ranges[letter]) for letter in letters)):
            keras_name, hf_name = keras_pattern, hf_pattern
            for letter, value in zip(letters, values):
                index = f"{{{letter}}}"
                keras_name, hf_name = keras_name.replace(index, str(value)), hf_name.replace(index, str(value))
            fused = _FUSED.search(hf_name)
            parts = [part.partition("*") for part in fused.group(1).split(",")] if fused else []
            hf_names = tuple(_FUSED.sub(name, hf_name) for name, _, _ in parts) or (hf_name,)
            widths = tuple(index_ranges[letter] if letter else 1 for _, _, letter in parts) or (1,)
            entries.append(WeightMapping(keras_name, hf_names, widths))
    return entries


def normalize_tensor_name(tensor_name: str, family: Family) -> str:
    """Any spelling of a tensor's name in files -> the table's: without prefix, LayerNorm's weight and bias."""
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", tensor_name)
    name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
    prefixes = (family.prefix, *family.former_prefixes)
    return next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)


def find_wrapper_prefix(tensor_names: Iterable[str], family_prefix: str) -> str:
    """What all names begin with because the model was part of another object; "" where they don't.

    A family's own prefix, which may be one of the same words, stays.
    """
    names, start = list(tensor_names), ""
    while wrapper := next((w for w in _WRAPPERS if names and all(name.startswith(start + w) for name in names)), None):
        if wrapper == family_prefix and not any(name.startswith(start + wrapper + family_prefix) for name in names):
            break
        start += wrapper
    return start


def weight_table(family: Family, config: Any, head_names: tuple[str, ...]) -> list[WeightMapping]:
    """The entries of a family's encoder and heads."""
    names = sum((family.head_tensor_names(config, head) for head in head_names), family.names)
    return expand_name_patterns(names, family.placeholder_counts(config))


def use_module_names(entries: Iterable[WeightMapping], family: Family, config: Any) -> list[WeightMapping]:
    """The same entries by the names of transformers' modules, which are not those of the files in every family."""
    alternatives = expand_name_patterns(family.alternative_names, family.placeholder_counts(config))
    modules = {entry.keras_name: entry for entry in alternatives}
    return [modules.get(entry.keras_name, entry) for entry in entries]


def respell(
    tensors: LazyTensors, file_keys: dict[str, str], family: Family, config: Any, head_names: tuple[str, ...]
) -> LazyTensors:
    """The tensors under the table's names where the file has the family's alternative ones; `file_keys` follows."""
    alternatives = expand_name_patterns(family.alternative_names, family.placeholder_counts(config))
    spellings = {entry.keras_name: entry for entry in alternatives if entry.has_all_tensors(tensors)}
    groups: dict[str, tuple[str, ...]] = {}
    for entry in weight_table(family, config, head_names) if spellings else ():
        if entry.keras_name in spellings and not entry.has_all_tensors(tensors):
            names = spellings[entry.keras_name].hf_names
            groups |= zip(entry.hf_names, [names] if len(entry.hf_names) == 1 else [(name,) for name in names])
    joined = tensors.with_joined(groups)
    for name, parts in groups.items():
        file_keys[name] = file_keys[parts[0]]
        for part in parts:
            file_keys.pop(part, None)
    return joined
