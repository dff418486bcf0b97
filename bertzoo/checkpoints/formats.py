"""What a checkpoint directory holds, whatever its format: a configuration, and tensors under Hugging Face's names."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertzoo.checkpoints import fairseq, gliner, tf1
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.json_files import read_json
from bertzoo.checkpoints.names import Family
from bertzoo.checkpoints.tensors import LazyTensors, open_tensors_in_directory

_FOREIGN = (gliner, fairseq, tf1)

# The content of a config.json -> its configuration and its family; raises ValueError or TypeError.
ReadConfigAndFamily = Callable[[Mapping[str, Any]], tuple[Any, Family]]


@dataclass
class Checkpoint:
    """An open checkpoint: its configuration and family, its tensors, and notes for the load report."""

    config: Any
    family: Family
    tensors: LazyTensors
    notes: list[str]


def is_checkpoint(directory: Path) -> bool:
    """Whether a directory looks like a checkpoint of any format."""
    return (directory / "config.json").is_file() or any(module.is_checkpoint(directory) for module in _FOREIGN)


@contextmanager
def open_checkpoint(
    directory: Path, read_config_and_family: ReadConfigAndFamily, head_names: tuple[str, ...] = ()
) -> Iterator[Checkpoint]:
    """The checkpoint in a directory, whose files stay open within the context.

    Args:
        directory: A Hugging Face directory, GLiNER's, fairseq's RoBERTa (`model.pt`), or a TensorFlow 1 checkpoint of
            Google's.
        read_config_and_family: See `load_model`.
        head_names: The family's heads that are wanted: a TensorFlow checkpoint of ELECTRA holds two encoders.

    Raises:
        CheckpointError: The files can't be read, or describe nothing that bertzoo computes.
    """
    foreign = next((module for module in _FOREIGN if module.is_checkpoint(directory)), None)
    if foreign:
        content, tensors, notes = foreign.read_config_and_tensors(directory, head_names)
    else:
        content, tensors, notes = read_json(directory / "config.json"), None, []
        if str(content.get("registered_name", "")).startswith(("keras_hub>", "keras_nlp>")):
            raise CheckpointError(f"{directory} is a preset of KerasHub; load it with bertzoo.from_keras_hub.")
    try:
        config, family = read_config_and_family(content)
    except (ValueError, TypeError) as error:
        source = directory if foreign else directory / "config.json"
        raise CheckpointError(f"{source} can't be used: {error}") from error
    with tensors or open_tensors_in_directory(directory) as tensors:
        _check_sizes(config, tensors, directory)
        yield Checkpoint(config, family, tensors, notes)


def _check_sizes(config: Any, tensors: LazyTensors, directory: Path) -> None:
    """Refuses a configuration far larger than its weights before memory is taken for it."""
    held = sum(math.prod(tensors.shape(name)) for name in tensors)
    least = {
        "vocab_size": config.vocab_size * config.embedding_size,
        "hidden_size": config.hidden_size**2,
        "intermediate_size": config.hidden_size * config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "type_vocab_size": config.type_vocab_size * config.embedding_size,
        "num_labels": config.extra.get("num_labels") or 0,
    }
    for name in ("inner_group_num", "conv_kernel_size"):
        least[name] = getattr(config, name, 0) * config.hidden_size
    if getattr(config, "relative_attention", False):
        least["max_relative_positions"] = getattr(config, "span", config.max_distance) * config.hidden_size
    if any(name.endswith("position_embeddings.weight") for name in tensors):
        least["max_position_embeddings"] = config.max_position_embeddings * config.embedding_size
    for key, numbers in least.items():
        if numbers > held:
            raise CheckpointError(
                f"{directory} can't be used: its configuration has {key} = {config.to_hf().get(key)}, which takes more "
                f"than the {held} numbers that its files hold."
            )
