"""Directories of sentence-transformers: an encoder's checkpoint, and small files that describe the layers after it.

`modules.json` lists the modules: the encoder in the directory itself, `1_Pooling/`, then any of `2_Dense/` (with
weights) and `2_Normalize/`. `sentence_bert_config.json` holds the maximum length, `config_sentence_transformers.json`
the prompts. Class names are compared with a fixed list; nothing is imported or executed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError, add_source_to_errors
from bertzoo.checkpoints.files import expand_user, find_preset_directory
from bertzoo.checkpoints.json_files import (
    FLAG,
    NULL,
    TEXT,
    Rule,
    check_values,
    encode_json,
    integer_rule,
    list_rule,
    object_rule,
    read_json,
)
from bertzoo.checkpoints.saving import recover_interrupted_save
from bertzoo.checkpoints.tensors import build_weight_files, open_tensors_in_directory, to_finite_float32

DOCUMENT_PROMPTS = ("document", "passage", "corpus")
MODULES_FILE, LENGTH_FILE = "modules.json", "sentence_bert_config.json"
SETTINGS_FILE = "config_sentence_transformers.json"
# The keys of older files, one for each pooling that is concatenated.
OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
LENGTH_RULES = {"max_seq_length": integer_rule(1) | NULL, "do_lower_case": FLAG | NULL, "transformer_task": TEXT}
SETTINGS_RULES = {
    "activation_fn": TEXT | NULL,
    "default_prompt_name": TEXT | NULL,
    "prompts": object_rule(TEXT | NULL) | NULL,
    "similarity_fn_name": TEXT | NULL,
    "truncate_dim": integer_rule(1) | NULL,
}
MODULE_RULES = {
    "Pooling": {
        "include_prompt": FLAG,
        "pooling_mode": TEXT | list_rule(TEXT) | NULL,
        **dict.fromkeys(OLD_POOLINGS, FLAG),
    },
    "Dense": {
        "activation_function": TEXT,
        "bias": FLAG,
        "out_features": integer_rule(1),
        "use_residual": FLAG,
        **dict.fromkeys(("module_input_name", "module_output_name"), TEXT | NULL),
    },
}
_MODULES = Rule(
    "a list of modules, each with a type and a path, of which an encoder is expected to come first",
    lambda modules: isinstance(modules, list) and len(modules) > 0 and all(map(_is_module, modules)),
)
# torch's module -> Keras's activation.
ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}


@dataclass(frozen=True)
class SentenceModule:
    """One module after the encoder: its kind ("Pooling", "Dense", "Normalize"), settings, weights by name, and its
    directory."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: Path = Path()


@dataclass(frozen=True)
class SentenceTransformerFiles:
    """What a directory describes besides the encoder.

    Attributes:
        directory: The directory of the encoder and its tokenizer.
        modules: The modules after the encoder; empty for a plain encoder.
        max_length: The maximum length in tokens, or None.
        lowercase: Whether texts are lowercased before the tokenizer.
        settings: The content of config_sentence_transformers.json.
    """

    directory: Path
    modules: tuple[SentenceModule, ...] = ()
    max_length: int | None = None
    lowercase: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_sentence_transformer_files(preset: str | Path) -> SentenceTransformerFiles:
    """Reads the small files of a preset, of sentence-transformers or of a plain encoder.

    Raises:
        CheckpointError: There is no such preset, a file is damaged, or it describes what bertzoo does not compute.
    """
    root, entries = _find(preset)
    settings = read_json(root / SETTINGS_FILE, SETTINGS_RULES, default={})
    if not entries:
        return SentenceTransformerFiles(root, settings=settings)
    with add_source_to_errors(root / MODULES_FILE):
        (kind, directory), *rest = [_kind_and_path(root, entry) for entry in entries]
        length = read_json(directory / LENGTH_FILE, LENGTH_RULES, default={})
        task = length.get("transformer_task", "feature-extraction")
        if kind != "Transformer" or task != "feature-extraction":
            raise CheckpointError(
                f"an encoder is expected first, a Transformer for feature-extraction. Received: {kind} for {task}."
            )
        modules = tuple(_read_module(path, kind) for kind, path in rest)
    return SentenceTransformerFiles(
        directory, modules, length.get("max_seq_length"), bool(length.get("do_lower_case")), settings
    )


def document_prompt_name(prompts: Mapping[str, str]) -> str | None:
    """The name of the prompt for documents, or None."""
    return next((name for name in DOCUMENT_PROMPTS if name in prompts), None)


def read_sentence_transformers_config(preset: str | Path) -> dict[str, Any]:
    """The content of config_sentence_transformers.json of a preset; empty where it has none."""
    return read_json(_find(preset)[0] / SETTINGS_FILE, SETTINGS_RULES, default={})


def _find(preset: str | Path) -> tuple[Path, list[dict[str, Any]]]:
    """The root of a preset, and the entries of its modules.json."""
    folder = expand_user(preset)
    recover_interrupted_save(folder)
    # Before version 2 the encoder had a folder of its own, and the root no config.json.
    root = folder if (folder / MODULES_FILE).is_file() else find_preset_directory(preset)
    return root, read_json(root / MODULES_FILE, _MODULES, default=[])


def _is_module(entry: Any) -> bool:
    return isinstance(entry, dict) and {type(entry.get("type")), type(entry.get("path", ""))} == {str}


def _kind_and_path(root: Path, entry: Mapping[str, Any]) -> tuple[str, Path]:
    library, _, rest = entry["type"].partition(".")
    kind = rest.rpartition(".")[-1]
    if library != "sentence_transformers" or kind not in ("Transformer", "Pooling", "Dense", "Normalize"):
        raise CheckpointError(
            f"modules.json names {entry['type']}; bertzoo computes sentence_transformers' Transformer, Pooling, Dense "
            "and Normalize, and runs no code that comes with a checkpoint."
        )
    path = PurePosixPath(entry.get("path", ""))
    if path.is_absolute() or ".." in path.parts or "\\" in str(path) or ":" in str(path):
        raise CheckpointError(f"modules.json has the path {str(path)!r}; a name inside the directory is expected.")
    return kind, root / path


def _read_module(directory: Path, kind: str) -> SentenceModule:
    if kind not in MODULE_RULES:
        return SentenceModule(kind, source=directory)
    settings, tensors = read_json(directory / "config.json", MODULE_RULES[kind], default={}), {}
    if kind == "Dense" or "attention" in (settings.get("pooling_mode") or ()):
        with open_tensors_in_directory(directory) as stored:
            tensors = {name: to_finite_float32(stored[name], f"{directory}: tensor {name}") for name in stored}
    if kind == "Dense":
        with add_source_to_errors(directory / "config.json"):
            settings = _dense_settings(settings, len(tensors.get("linear.weight", ())))
    else:
        modes = settings.get("pooling_mode")
        if modes is None:
            modes = [mode for key, mode in OLD_POOLINGS.items() if settings.get(key)] or ["mean"]
        modes = [modes] if isinstance(modes, str) else list(modes)
        settings = {"modes": modes, "include_prompt": settings.get("include_prompt", True)}
    return SentenceModule(kind, settings, tensors, directory)


def _dense_settings(settings: Mapping[str, Any], units: int) -> dict[str, Any]:
    activation = settings.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise CheckpointError(f"activation_function must be one of {', '.join(ACTIVATIONS)}. Received: {activation!r}.")
    inputs = {settings.get(key) or "sentence_embedding" for key in ("module_input_name", "module_output_name")}
    if settings.get("use_residual") or inputs != {"sentence_embedding"}:
        raise CheckpointError(f"it describes a Dense that bertzoo does not compute: {settings}.")
    check_values({"out_features": None, **settings}, {"out_features": integer_rule(units, units)})
    return {"units": units, "activation": ACTIVATIONS[activation], "bias": settings.get("bias", True)}


def build_sentence_transformer_files(
    modules: list[SentenceModule], max_length: int | None, settings: Mapping[str, Any]
) -> dict[str, bytes | Callable[[Path], None]]:
    """The files that make a checkpoint directory one of sentence-transformers, for `write_preset`.

    Args:
        modules: The modules after the encoder, with settings in sentence-transformers' keys.
        max_length: The maximum length in tokens.
        settings: The content of config_sentence_transformers.json.
    """
    kinds = ["Transformer", *(module.kind for module in modules)]
    folders = ["", *(f"{number}_{module.kind}" for number, module in enumerate(modules, start=1))]
    entries = [
        {"idx": i, "name": str(i), "path": folder, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, folder) in enumerate(zip(kinds, folders))
    ]
    files: dict[str, bytes | Callable[[Path], None]] = {}
    for folder, module in zip(folders[1:], modules):
        files[f"{folder}/config.json"] = encode_json(dict(module.settings))
        if module.tensors:
            files.update({f"{folder}/{name}": write for name, write in build_weight_files(module.tensors).items()})
    files[MODULES_FILE] = encode_json(entries)
    files[LENGTH_FILE] = encode_json({"max_seq_length": max_length, "do_lower_case": False})
    files[SETTINGS_FILE] = encode_json(dict(settings))
    return files


def build_cross_encoder_files(settings: Mapping[str, Any]) -> dict[str, bytes]:
    """The files from which sentence-transformers reads the settings of a cross-encoder."""
    entry = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    reading = {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
    }
    content = {"model_type": "CrossEncoder", **settings}
    return {MODULES_FILE: encode_json([entry]), LENGTH_FILE: encode_json(reading), SETTINGS_FILE: encode_json(content)}
