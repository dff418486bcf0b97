"""Adapters in PEFT's files, adapter_config.json and adapter_model.safetensors: what is read, refused and written.

The tensors say which modules have factors, and how large. The names in adapter_config.json may be regular expressions,
which a hostile file can make take for ever, so none is ever tried.
"""

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.adapters.lora import (
    enable_lora,
    find_dense_layers,
    lora_factors_by_module,
    require_lora_layers,
    undo_lora_on_failure,
)
from bertzoo.checkpoints.errors import CheckpointError, add_source_to_errors
from bertzoo.checkpoints.files import find_adapter_directory
from bertzoo.checkpoints.json_files import (
    FLAG,
    NULL,
    TEXT,
    integer_rule,
    list_rule,
    number_rule,
    object_rule,
    read_json,
)
from bertzoo.checkpoints.loading import map_weights_to_tensors, weights_by_name
from bertzoo.checkpoints.names import WeightMapping, use_module_names
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import open_tensors_in_file, save_tensors, to_finite_float32

TENSORS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
OLD_TENSORS = "adapter_model.bin"
PREFIX = "base_model.model."
_TASK_TYPES = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}

RULES = {
    "alpha_pattern": object_rule(number_rule()) | NULL,
    "lora_alpha": number_rule(),
    "modules_to_save": list_rule(TEXT) | NULL,
    "r": integer_rule(1),
    "rank_pattern": object_rule(integer_rule(1)) | NULL,
    "use_rslora": FLAG | NULL,
}
# The tensors' names and shapes say the same.
_BY_TENSORS = ("exclude_modules", "layers_to_transform", "layers_pattern", "target_modules")
# Settings of training, of where the base model is, and of features that are refused by another key.
INERT = """
    auto_mapping base_model_name_or_path corda_config eva_config inference_mode loftq_config lora_dropout
    lora_ga_config megatron_core peft_version qalora_group_size revision runtime_config task_type
""".split()  # noqa: SIM905
# Key -> the values that are computed, and why others are refused. Of all other keys, only empty values are.
ALLOWED: Mapping[str, tuple[tuple, str]] = {
    "peft_type": (("LORA",), "; an adapter of type 'LORA' is expected"),
    "bias": ((None, "none"), ", which trains biases; bertzoo does not read them"),
    "init_lora_weights": (
        (None, True, False, "default", "gaussian", "eva", "orthogonal"),
        ", which changed the weights of the base model too: save it with PEFT's save_pretrained(..., "
        "path_initial_model_for_weight_conversion=...), which makes plain LoRA of it",
    ),
}
EMPTY: tuple[tuple, str] = ((None, False, [], {}), ", which bertzoo does not compute")


def _read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """adapter_config.json, and the tensors of adapter_model.safetensors, or else of adapter_model.bin, as float32.

    Raises:
        CheckpointError: They can't be read, or describe what bertzoo does not compute.
    """
    settings = folder / SETTINGS
    if not settings.is_file():
        raise CheckpointError(f"{folder} holds no adapter: it has no {SETTINGS}.")
    config = read_json(settings, RULES)
    for key, value in {"peft_type": None, **config}.items():
        values, reason = ALLOWED.get(key, EMPTY)
        if key not in (*RULES, *_BY_TENSORS, *INERT) and value not in values:
            raise CheckpointError(f"{settings} has {key} = {value!r:.80}{reason}.")
    for key in ("r", "lora_alpha"):
        if key not in config:
            raise CheckpointError(f"{settings} has no {key} that can be used.")
    path = folder / (TENSORS if (folder / TENSORS).is_file() or not (folder / OLD_TENSORS).is_file() else OLD_TENSORS)
    with open_tensors_in_file(path) as tensors:
        return config, {name: to_finite_float32(tensors[name], f"{path}: tensor {name}") for name in tensors}


def _lora_options(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], folder: Path) -> dict[str, Any]:
    """The options of `enable_lora` that make the factors of a file.

    Raises:
        CheckpointError: A module's alpha is given by a regular expression, or a rank is not what the settings say.
    """
    ranks = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(re.escape(PREFIX) + r"(.+)\.lora_A\.weight", name):
            ranks[match[1]] = tensor.shape[0] if tensor.ndim else 0
    if not ranks:
        raise CheckpointError(f"{folder} has no factors: no tensor is called {PREFIX}….lora_A.weight.")
    rank_pattern = {module: rank for module, rank in ranks.items() if rank != config["r"]}
    if rank_pattern and not config.get("rank_pattern"):
        module, rank = next(iter(rank_pattern.items()))
        raise CheckpointError(f"{folder} has factors of rank {rank} for {module}; r is {config['r']} in {SETTINGS}.")
    alpha_pattern: dict[str, float] = {}
    for pattern, alpha in (config.get("alpha_pattern") or {}).items():
        name = pattern.removeprefix("^").removesuffix("$")
        if re.search(r"[^\w.]", name):
            raise CheckpointError(
                f"{folder / SETTINGS} gives an alpha for {pattern!r}; the name of a module is expected."
            )
        for module in ranks:
            if module == name or (not pattern.startswith("^") and module.endswith(f".{name}")):
                alpha_pattern.setdefault(module, alpha)
    return {
        "rank": config["r"],
        "alpha": config["lora_alpha"],
        "targets": sorted(ranks),
        "use_rslora": bool(config.get("use_rslora")),
        "rank_pattern": rank_pattern,
        "alpha_pattern": alpha_pattern,
    }


def save_adapter(task: keras.Model, directory: str | Path, base_model: str = "") -> None:
    """Writes the factors, and the head if it trains, as a PEFT adapter that `peft.PeftModel.from_pretrained` loads.

    What PEFT has no form for, a CRF or a custom head, is in the file too, as tensors `bertzoo.head.*`.

    Args:
        task: A task with LoRA.
        directory: Where to.
        base_model: The name of the model that PEFT loads them on.

    Raises:
        ValueError: There are no factors, or a weight trains that is neither of them nor of the head.
    """
    require_lora_layers(task)
    encoder, heads, prefix = _encoder_and_heads(task)
    settings = encoder.lora
    head = _head_entries(task) if settings["train_head"] else []
    _check_all_saved(task, [weight for _, weight in head])
    tensors = {
        f"{PREFIX}{prefix}{module}.lora_{letter}.weight": _float32(factor).T
        for module, factors in lora_factors_by_module(task).items()
        for letter, factor in zip("AB", factors)
    }
    for entry, weight in head:
        tensors.update({f"{PREFIX}{name}": value for name, value in entry.to_file_tensors(_float32(weight)).items()})
    modules = {name.split(".")[0] for entry, _ in head for name in entry.hf_names} - {"bertzoo"}
    config = {
        "peft_type": "LORA",
        "task_type": _TASK_TYPES.get(encoder.family.heads[heads[0]].hf_class) if heads else None,
        "base_model_name_or_path": str(base_model),
        "r": settings["rank"],
        "lora_alpha": settings["alpha"],
        "use_rslora": settings["use_rslora"],
        "rank_pattern": settings["rank_pattern"],
        "alpha_pattern": settings["alpha_pattern"],
        "target_modules": settings["targets"],
        "modules_to_save": sorted(modules) or None,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    content = (json.dumps(config, indent=2) + "\n").encode()
    write_preset(Path(directory), {SETTINGS: content, TENSORS: partial(save_tensors, tensors=tensors)})


def load_adapter(task: keras.Model, directory: str | Path) -> None:
    """Adds a PEFT LoRA adapter to a task: factors, and the head if the file has it.

    A failure leaves the task unchanged.

    Args:
        task: A task, or an `Encoder`.
        directory: Where from, or `hf://owner/name[@revision]`.

    Raises:
        CheckpointError: The files are missing, not of plain LoRA, or don't fit the model, or it has LoRA already.
    """
    folder = find_adapter_directory(directory)
    config, tensors = _read_adapter(folder)
    with undo_lora_on_failure(task):
        with add_source_to_errors(folder):
            options = _lora_options(config, tensors, folder)
            _check_shapes(task, tensors, folder)
            has_head = any(not re.search(r"\.lora_[AB]\.", name) for name in tensors)
            enable_lora(task, **options, train_head=has_head)
        _, _, prefix = _encoder_and_heads(task)
        # Without what PEFT's classes put before and between the names.
        by_name = {re.sub(r"\.modules_to_save(\.default)?", "", k).removeprefix(PREFIX): v for k, v in tensors.items()}
        values = []
        for module, factors in lora_factors_by_module(task).items():
            for letter, factor in zip("AB", factors):
                values.append((factor, by_name.pop(f"{prefix}{module}.lora_{letter}.weight").T))
        for weight, value in [*values, *_head_values(task, by_name, config, folder)]:
            weight.assign(value)


def _encoder_and_heads(task: Any) -> tuple[Any, tuple[str, ...], str]:
    """The encoder, the family's heads, and what files put before the names of the encoder's modules."""
    encoder, heads = getattr(task, "backbone", task), getattr(task, "heads", ())
    return encoder, heads, encoder.family.prefix if heads else ""


def _float32(weight: keras.Variable) -> np.ndarray:
    return np.array(ops.convert_to_numpy(weight), dtype="float32")


def _check_shapes(task: keras.Model, tensors: Mapping[str, np.ndarray], folder: Path) -> None:
    """Compares the factors with the layers before memory is taken for them."""
    encoder, _, prefix = _encoder_and_heads(task)
    for layer in find_dense_layers(encoder):
        inner, units = layer.dense.kernel.shape
        for module, width in zip(layer.modules, layer.widths):
            outer = units * width // sum(layer.widths)
            a, b = (tensors.get(f"{PREFIX}{prefix}{module}.lora_{letter}.weight") for letter in "AB")
            if a is None and b is None:
                continue
            rank = 0 if a is None or not a.ndim else a.shape[0]
            for letter, tensor, shape in (("A", a, (rank, inner)), ("B", b, (outer, rank))):
                if tensor is None or tensor.shape != shape:
                    raise CheckpointError(f"{folder} lacks lora_{letter} of {module} with shape {shape}.")


def _head_values(
    task: keras.Model, tensors: Mapping[str, np.ndarray], config: Mapping[str, Any], folder: Path
) -> list[tuple[keras.Variable, np.ndarray]]:
    """The weights of the head that an adapter has, each with its value."""
    entries = _head_entries(task)
    names = [name for entry, _ in entries for name in entry.hf_names]
    unknown = sorted(set(tensors) - set(names))
    if unknown:
        raise CheckpointError(f"{folder} has tensors that do not fit the model: {', '.join(unknown[:5])}.")
    # An adapter may have the head's last layer alone, as PEFT's usually do, or nothing of it; of a module that it has,
    # or says to have, it must have all tensors, and of a custom head too.
    modules = {name.rpartition(".")[0] for name in tensors} | {*(config.get("modules_to_save") or ())}
    missing = [
        name
        for name in names
        if name not in tensors
        and (
            (name.startswith("bertzoo.") and tensors)
            or name.rpartition(".")[0] in modules
            or not modules.isdisjoint(name.split(".")[:-1])
        )
    ]
    if missing:
        raise CheckpointError(f"{folder} lacks tensors of the model's head: {', '.join(missing[:5])}.")
    values = []
    for entry, weight in entries:
        if set(entry.hf_names) <= set(tensors):
            value = entry.to_keras_weight([tensors[name] for name in entry.hf_names])
            if value.shape != tuple(weight.shape):
                raise CheckpointError(
                    f"{folder} has {', '.join(entry.hf_names)} of shape {value.shape}; the model's is "
                    f"{tuple(weight.shape)}."
                )
            values.append((weight, value))
    return values


def _check_all_saved(task: Any, head: list[keras.Variable]) -> None:
    """Refuses an adapter that would lack what was trained."""
    # The layer of a sentence loss is thrown away after training.
    kept = [*head, *getattr(getattr(task, "training_head", None), "weights", ())]
    ids = {id(weight) for weight in kept} | _factor_ids(task)
    lost = [weight.path for weight in task.trainable_weights if id(weight) not in ids]
    if lost:
        raise ValueError(
            f"an adapter has no place for {', '.join(lost[:5])}, which train: freeze them (enable_lora with "
            "train_head=False does so with a head), or call merge_lora and save_to_preset."
        )


def _factor_ids(task: keras.Model) -> set[int]:
    return {id(factor) for factors in lora_factors_by_module(task).values() for factor in factors}


def _head_entries(task: Any) -> list[tuple[WeightMapping, keras.Variable]]:
    """What a preset of the task holds besides the encoder: names, and the weight."""
    encoder, heads, _ = _encoder_and_heads(task)
    if not heads and getattr(task, "custom_head", None) is None:
        return []
    weights, in_encoder = weights_by_name(task), {id(weight) for weight in encoder.weights}
    entries = map_weights_to_tensors(task, encoder, heads, ignored_ids=_factor_ids(task))
    entries = use_module_names(entries, encoder.family, encoder.config)
    return [(e, weights[e.keras_name]) for e in entries if id(weights[e.keras_name]) not in in_encoder]
