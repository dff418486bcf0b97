"""The number of parameters of a model, by part, without allocating them."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import keras

from bertzoo._keras_hooks import build_without_values
from bertzoo.checkpoints.catalog import CatalogEntry, find_catalog_entry
from bertzoo.checkpoints.files import find_preset_directory
from bertzoo.checkpoints.formats import open_checkpoint
from bertzoo.checkpoints.names import expand_name_patterns, normalize_tensor_name
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.models.registry import FAMILIES, config_and_family_from_hf

PARTS = ("embeddings", "attention", "feed-forward", "norms", "pooler", "head")


@dataclass(frozen=True)
class EncoderDescription:
    """The result of `describe`: parameters by part (see PARTS), and the catalog's entry, if any."""

    name: str
    config: EncoderConfig
    parts: dict[str, int]
    published: CatalogEntry | None = None

    @property
    def parameters(self) -> int:
        """The number of all parameters; shared tables and blocks count once."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        config = self.config
        lines = [
            f"{self.name}: {config.model_type}, {config.num_hidden_layers} layers × {config.hidden_size}, "
            f"{config.num_attention_heads} heads, {config.vocab_size:,} tokens, up to {config.max_length:,} a text"
        ]
        if self.published is not None:
            lines.append(self.published.use)
        width = len(f"{self.parameters:,}")
        lines += [f"{part:<13}{n:>{width},}{n / self.parameters:>8.1%}" for part, n in self.parts.items() if n]
        return "\n".join([*lines, f"{'all':<13}{self.parameters:>{width},}"])


def describe(name: str | Path) -> EncoderDescription:
    """Counts the parameters of a checkpoint by part, without downloading it or allocating weights.

    Args:
        name: A bundled preset, a directory, or a checkpoint of the catalog ("google-bert/bert-base-uncased", with or
            without "hf://"). For files the head is counted too; the catalog describes encoders only.

    Raises:
        ValueError: There is no such directory, bundled preset or entry of the catalog.

    Example:
        >>> print(bz.describe("bert_mini_en"))
        bert_mini_en: bert, 6 layers × 256, 4 heads, 16,000 tokens, up to 512 a text
        ...
    """
    text = os.fspath(name)
    if text.startswith("hf://") or (text.count("/") == 1 and not Path(text).exists()):
        published = find_catalog_entry(text)
        config = EncoderConfig.from_hf(published.config)
        return EncoderDescription(
            published.name, config, _by_part(config, FAMILIES[config.model_type].has_pooler_alone), published
        )
    with open_checkpoint(find_preset_directory(name), config_and_family_from_hf) as checkpoint:
        config, family, tensors = checkpoint.config, checkpoint.family, checkpoint.tensors
        sizes = {stored: math.prod(tensors.shape(stored)) for stored in tensors}
    own = {
        name: entry.keras_name
        for entry in expand_name_patterns(family.names + family.alternative_names, family.placeholder_counts(config))
        for name in entry.hf_names
    }
    # DeBERTa's positions are among the encoder's names but belong to its masked-LM head.
    own = {name: keras_name for name, keras_name in own.items() if not keras_name.startswith("masked_lm/")}
    names = {stored: normalize_tensor_name(stored, family) for stored in sizes}
    pooler = any(own.get(known, "").startswith("pooler/") for known in names.values())
    parts = _by_part(config, pooler)
    parts["head"] = sum(
        size
        for stored, size in sizes.items()
        if names[stored] not in own and not family.is_ignored_tensor(names[stored])
    )
    return EncoderDescription(text, config, parts)


def _by_part(config: EncoderConfig, pooler: bool) -> dict[str, int]:
    parts = dict.fromkeys(PARTS, 0)
    for weight in build_without_values(lambda: Encoder(config, pooler=pooler)).weights:
        parts[_part(weight.path)] += math.prod(weight.shape)
    return parts


def _part(path: str) -> str:
    """The part of a weight within the encoder, from a path such as "encoder/layer_0/attention/qkv/kernel"."""
    names = path.split("/")[1:]
    if any(name == "norm" or name.endswith("_norm") for name in names[:-1]):
        return "norms"
    if names[0] in ("embeddings", "pooler"):
        return names[0]
    return "attention" if "attention" in names or names[0] == "relative" else "feed-forward"


def count_parameters_by_part(
    config: EncoderConfig, pooler: bool = True, make_task: Callable[[Encoder], keras.Model] | None = None
) -> dict[str, int]:
    """Counts the parameters of each part of an encoder, such as `embeddings`, `layer_0` and `pooler`, and of a head.

    No weights are allocated, so that models of any size take no memory. Shared tables and blocks count once.

    Args:
        config: The encoder's configuration.
        pooler: Whether to count the pooler, if the family has one.
        make_task: A function from the encoder to a task, such as `bertzoo.MaskedLM`, whose head is counted.
    """
    encoder = build_without_values(lambda: Encoder(config, pooler=pooler))
    model = encoder if make_task is None else build_without_values(lambda: make_task(encoder))
    counts: dict[str, int] = {}
    for weight in model.weights:
        # "encoder/layer_0/…" within the encoder, "head/…" or "task/head/…" outside it.
        part = weight.path.split("/")[1]
        counts[part] = counts.get(part, 0) + math.prod(weight.shape)
    return counts
