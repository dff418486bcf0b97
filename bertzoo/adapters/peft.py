"""Adapters in PEFT's files, adapter_config.json and adapter_model.safetensors: what is read, refused and written.

The tensors say which modules have factors, and how large. The names in adapter_config.json may be regular expressions,
which a hostile file can make take for ever, so none is ever tried.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.adapters.lora import (
    dense_layers,
    enable_lora,
    factor_ids,
    lora_factors,
    lora_layers,
    remove_lora,
    require_lora,
)
from bertzoo.checkpoints.errors import CheckpointError, error_source
from bertzoo.checkpoints.files import resolve_adapter
from bertzoo.checkpoints.json_files import FLAG, NULL, TEXT, integer, list_of, number, object_of, read_json
from bertzoo.checkpoints.loading import weight_map, weight_names
from bertzoo.checkpoints.names import Entry
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import float_tensor, open_tensor_file, save_tensors

TENSORS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
OLD_TENSORS = "adapter_model.bin"
PREFIX = "base_model.model."
_TASK_TYPES = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}

RULES = {
    "alpha_pattern": object_of(number()) | NULL,
    "bias": TEXT | NULL,
    "lora_alpha": number(),
    "modules_to_save": list_of(TEXT) | NULL,
    "r": integer(1),
    "rank_pattern": object_of(integer(1)) | NULL,
    "use_rslora": FLAG | NULL,
}
# The tensors' names and shapes say the same.
_BY_TENSORS = ("exclude_modules", "layers_to_transform", "layers_pattern", "target_modules")
# Settings of training, of where the base model is, and of features that are refused by another key.
INERT = """
    auto_mapping base_model_name_or_path corda_config eva_config inference_mode loftq_config lora_dropout
    lora_ga_config megatron_core peft_version qalora_group_size revision runtime_config task_type
""".split()  # noqa: SIM905
# How the factors began, where the weights of the base model stayed as they were.
_PLAIN_STARTS = (None, True, False, "default", "gaussian", "eva", "orthogonal")


def read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """adapter_config.json, and the tensors of adapter_model.safetensors, or else of adapter_model.bin, as float32.

    Raises:
        CheckpointError: They can't be read, or describe what bertzoo does not compute.
    """
    if not (folder / SETTINGS).is_file():
        raise CheckpointError(f"{folder} holds no adapter: it has no {SETTINGS}.")
    config = read_json(folder / SETTINGS)
    if config.get("peft_type") != "LORA":
        raise CheckpointError(f"{folder / SETTINGS} is of a {config.get('peft_type')!r} adapter; LORA is expected.")
    read_json(folder / SETTINGS, RULES)
    _check_done(config, folder / SETTINGS)
    path = folder / (TENSORS if (folder / TENSORS).is_file() or not (folder / OLD_TENSORS).is_file() else OLD_TENSORS)
    with open_tensor_file(path) as tensors:
        return config, {name: float_tensor(tensors[name], f"{path}: tensor {name}") for name in tensors}


def _check_done(config: Mapping[str, Any], path: Path) -> None:
    start = config.get("init_lora_weights")
    if start not in _PLAIN_STARTS:
        raise CheckpointError(
            f"{path} has init_lora_weights = {start!r}, which changed the weights of the base model too: save it with "
            "PEFT's save_pretrained(..., path_initial_model_for_weight_conversion=...), which makes plain LoRA of it."
        )
    known = {*RULES, *_BY_TENSORS, *INERT, "peft_type", "init_lora_weights"}
    for key, value in config.items():
        if key not in known and value not in (None, False, [], {}):
            raise CheckpointError(f"{path} has {key} = {value!r:.80}, which bertzoo does not compute.")
    if config.get("bias", "none") not in (None, "none"):
        raise CheckpointError(f"{path} trains biases ({config['bias']!r}), which bertzoo does not read.")
    lacking = [key for key in ("r", "lora_alpha") if key not in config]
    if lacking:
        raise CheckpointError(f"{path} has no {lacking[0]} that can be used.")


def lora_options(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], folder: Path) -> dict[str, Any]:
    """The options of `enable_lora` that make the factors of a file.

    Raises:
        CheckpointError: A module's alpha is given by a regular expression, or a rank is not what the settings say.
    """
    found = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(re.escape(PREFIX) + r"(.+)\.lora_A\.weight", name):
            found[match[1]] = tensor.shape[0] if tensor.ndim else 0
    if not found:
        raise CheckpointError(f"{folder} has no factors: no tensor is called {PREFIX}….lora_A.weight.")
    rank, ranks = config["r"], {module: own for module, own in found.items() if own != config["r"]}
    if ranks and not config.get("rank_pattern"):
        module, own = next(iter(ranks.items()))
        raise CheckpointError(f"{folder} has factors of rank {own} for {module}; r is {rank} in {SETTINGS}.")
    alphas: dict[str, float] = {}
    for pattern, alpha in (config.get("alpha_pattern") or {}).items():
        name = pattern.removeprefix("^").removesuffix("$")
        if re.search(r"[^\w.]", name):
            raise CheckpointError(
                f"{folder / SETTINGS} gives an alpha for {pattern!r}; the name of a module is expected."
            )
        for module in found:
            if module == name or (not pattern.startswith("^") and module.endswith(f".{name}")):
                alphas.setdefault(module, alpha)
    return {
        "rank": rank,
        "alpha": config["lora_alpha"],
        "targets": sorted(found),
        "use_rslora": bool(config.get("use_rslora")),
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
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
    require_lora(task)
    encoder = getattr(task, "backbone", task)
    settings = encoder.lora
    heads = getattr(task, "heads", ())
    prefix = encoder.family.prefix if heads else ""
    tensors, own = {}, _head_entries(task) if settings["train_head"] else []
    _check_all_saved(task, [weight for _, weight in own])
    for module, (a, b) in lora_factors(task).items():
        name = f"{PREFIX}{prefix}{module}"
        tensors[f"{name}.lora_A.weight"] = np.array(ops.convert_to_numpy(a), dtype="float32").T
        tensors[f"{name}.lora_B.weight"] = np.array(ops.convert_to_numpy(b), dtype="float32").T
    for entry, weight in own:
        value = np.array(ops.convert_to_numpy(weight), dtype="float32")
        tensors.update({f"{PREFIX}{name}": part for name, part in entry.split(value).items()})
    saved = {name.split(".")[0] for entry, _ in own for name in entry.hf_names} - {"bertzoo"}
    hf_class = encoder.family.heads[heads[0]].hf_class if heads else ""
    config = {
        "peft_type": "LORA",
        "task_type": _TASK_TYPES.get(hf_class),
        "base_model_name_or_path": str(base_model),
        "r": settings["rank"],
        "lora_alpha": settings["alpha"],
        "use_rslora": settings["use_rslora"],
        "rank_pattern": settings["rank_pattern"],
        "alpha_pattern": settings["alpha_pattern"],
        "target_modules": settings["targets"],
        "modules_to_save": sorted(saved) or None,
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
    folder = resolve_adapter(directory)
    config, tensors = read_adapter(folder)
    encoder = getattr(task, "backbone", task)
    prefix = encoder.family.prefix if getattr(task, "heads", ()) else ""
    trained = [(weight, weight.trainable) for weight in task.weights]
    has_head = any(not re.search(r"\.lora_[AB]\.", name) for name in tensors)
    had_lora = bool(lora_layers(task))
    try:
        with error_source(folder):
            options = lora_options(config, tensors, folder)
            _check_shapes(encoder, tensors, prefix, folder)
            enable_lora(task, **options, train_head=has_head)
        _fill(task, tensors, config, folder)
    except BaseException:
        if not had_lora:
            remove_lora(task)
        for weight, trains in trained:
            weight.trainable = trains
        raise


def _check_shapes(encoder, tensors: Mapping[str, np.ndarray], prefix: str, folder: Path) -> None:
    """Compares the factors with the layers before memory is taken for them."""
    for _, _, dense, modules in dense_layers(encoder):
        inner, outer = dense.kernel.shape[0], dense.kernel.shape[1] // max(len(modules), 1)
        for module in modules:
            name = f"{PREFIX}{prefix}{module}.lora_"
            a, b = tensors.get(f"{name}A.weight"), tensors.get(f"{name}B.weight")
            if a is None and b is None:
                continue
            rank = 0 if a is None or not a.ndim else a.shape[0]
            for letter, tensor, shape in (("A", a, (rank, inner)), ("B", b, (outer, rank))):
                if tensor is None or tensor.shape != shape:
                    raise CheckpointError(f"{folder} lacks lora_{letter} of {module} with shape {shape}.")


def _fill(task, tensors: dict[str, np.ndarray], config: dict, folder: Path) -> None:
    """Checks all tensors against the task, then puts them in."""
    encoder, heads = getattr(task, "backbone", task), getattr(task, "heads", ())
    prefix = encoder.family.prefix if heads else ""
    left = {re.sub(r"\.modules_to_save(\.default)?", "", name).removeprefix(PREFIX): name for name in tensors}
    found = []
    for module, factors in lora_factors(task).items():
        for letter, factor in zip("AB", factors):
            found.append((factor, tensors[left.pop(f"{prefix}{module}.lora_{letter}.weight")].T))
    found += _head_values(task, {name: tensors[stored] for name, stored in left.items()}, config, folder)
    for weight, value in found:
        weight.assign(value)


def _head_values(task, tensors: dict[str, np.ndarray], config: dict, folder: Path) -> list[tuple]:
    """The weights of the head that an adapter has, each with its value."""
    entries = _head_entries(task)
    unknown = sorted(set(tensors) - {name for entry, _ in entries for name in entry.hf_names})
    if unknown:
        raise CheckpointError(f"{folder} has tensors that do not fit the model: {', '.join(unknown[:5])}.")
    lacking = [name for entry, _ in entries for name in entry.hf_names if name not in tensors]
    needed = [name for name in lacking if _is_needed(name, tensors, config.get("modules_to_save") or ())]
    if needed:
        raise CheckpointError(f"{folder} lacks tensors of the model's head: {', '.join(needed[:5])}.")
    present = [(entry, weight) for entry, weight in entries if set(entry.hf_names) <= set(tensors)]
    values = [(weight, entry.join([tensors[name] for name in entry.hf_names])) for entry, weight in present]
    for (entry, weight), (_, value) in zip(present, values):
        if value.shape != tuple(weight.shape):
            raise CheckpointError(
                f"{folder} has {', '.join(entry.hf_names)} of shape {value.shape}; the model's is "
                f"{tuple(weight.shape)}."
            )
    return values


def _is_needed(name: str, tensors: Collection[str], modules_to_save: Sequence[str]) -> bool:
    """Whether an adapter with these tensors of the head must have this one too. It may have the head's last layer
    alone, as PEFT's usually do, or nothing of it."""
    module = name.rpartition(".")[0]
    part_of = {other.rpartition(".")[0] for other in tensors} | {*modules_to_save}
    own = name.startswith("bertzoo.") and len(tensors) > 0
    return own or module in part_of or not part_of.isdisjoint(module.split("."))


def _check_all_saved(task, head: list) -> None:
    """Refuses an adapter that would lack what was trained."""
    # The layer of a sentence loss is thrown away after training.
    kept = [*head, *getattr(getattr(task, "training_head", None), "weights", ())]
    known = {id(weight) for weight in kept} | {id(w) for pair in lora_factors(task).values() for w in pair}
    lost = [weight.path for weight in task.trainable_weights if id(weight) not in known]
    if lost:
        raise ValueError(
            f"an adapter has no place for {', '.join(lost[:5])}, which train: freeze them (enable_lora with "
            "train_head=False does so with a head), or call merge_lora and save_to_preset."
        )


def _head_entries(task) -> list[tuple[Entry, keras.Variable]]:
    """What a preset of the task holds besides the encoder: names, and the weight."""
    encoder, heads = getattr(task, "backbone", task), getattr(task, "heads", ())
    if not heads and getattr(task, "custom_head", None) is None:
        return []
    weights, inner = weight_names(task), {id(weight) for weight in encoder.weights}
    entries = weight_map(task, encoder, heads, ignored=factor_ids(task))
    found = [(entry, weights[entry.keras_name]) for entry in entries]
    return [(entry, weight) for entry, weight in found if id(weight) not in inner]
