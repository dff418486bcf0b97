"""What a checkpoint directory holds, whatever its format: a configuration, and tensors under Hugging Face's names."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertzoo.checkpoints import fairseq, tf1
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.json_files import read_json
from bertzoo.checkpoints.tensors import Tensors, open_tensors
from bertzoo.models.config import EncoderConfig

FOREIGN = (fairseq, tf1)


@dataclass
class Checkpoint:
    """An open checkpoint; a context manager, since `tensors` may be mapped files."""

    config: EncoderConfig
    tensors: Tensors
    notes: list[str] = field(default_factory=list)

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *exception: object) -> None:
        self.tensors.close()


def is_checkpoint(directory: Path) -> bool:
    """Whether a directory looks like a checkpoint of any format."""
    return (directory / "config.json").is_file() or any(module.is_format(directory) for module in FOREIGN)


def open_checkpoint(directory: Path, heads: tuple[str, ...] = ()) -> Checkpoint:
    """The checkpoint in a directory.

    Args:
        directory: A Hugging Face directory, fairseq's RoBERTa (`model.pt`), or a TensorFlow 1 checkpoint of Google's.
        heads: The family's heads that are wanted: a TensorFlow checkpoint of ELECTRA holds two encoders.

    Raises:
        CheckpointError: The files can't be read, or describe nothing that bertzoo computes.
    """
    for module in FOREIGN:
        if module.is_format(directory):
            content, tensors, notes = module.read(directory, heads)
            config = config_of(content, directory)
            break
    else:
        config, tensors, notes = read_config(directory), open_tensors(directory), []
    _check_sizes(config, tensors, directory)
    return Checkpoint(config, tensors, notes)


def _check_sizes(config: EncoderConfig, tensors: Tensors, directory: Path) -> None:
    """Refuses a configuration far larger than its weights before memory is taken for it."""
    held = sum(math.prod(tensors.shape(name)) for name in tensors)
    asked = {
        "vocab_size": config.vocab_size * config.embedding_size,
        "hidden_size": config.hidden_size**2,
        "intermediate_size": config.hidden_size * config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
    }
    asked |= {
        "type_vocab_size": config.type_vocab_size * config.embedding_size,
        "num_labels": config.extra.get("num_labels") or 0,
    }
    for name in ("inner_group_num", "conv_kernel_size"):
        asked[name] = getattr(config, name, 0) * config.hidden_size
    if getattr(config, "relative_attention", False):
        asked["max_relative_positions"] = getattr(config, "span", config.max_distance) * config.hidden_size
    if any(name.endswith("position_embeddings.weight") for name in tensors):
        asked["max_position_embeddings"] = config.max_position_embeddings * config.embedding_size
    for key, numbers in asked.items():
        if numbers > held:
            raise CheckpointError(
                f"{directory} can't be used: its configuration has {key} = {config.to_hf().get(key)}, which takes more "
                f"than the {held} numbers that its files hold."
            )


def read_config(directory: Path) -> EncoderConfig:
    """The configuration in a Hugging Face directory.

    Raises:
        CheckpointError: The file is missing, is no JSON object, or describes nothing that bertzoo computes.
    """
    path = directory / "config.json"
    content = read_json(path)
    if str(content.get("registered_name", "")).startswith(("keras_hub>", "keras_nlp>")):
        raise CheckpointError(f"{directory} is a preset of KerasHub; load it with bertzoo.from_keras_hub.")
    return config_of(content, path)


def config_of(content: Mapping[str, Any], source: Path) -> EncoderConfig:
    """The configuration that the keys of a config.json make; raises CheckpointError where they make none."""
    try:
        return EncoderConfig.from_hf(content)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{source} can't be used: {error}") from error
