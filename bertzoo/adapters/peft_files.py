"""What the files of a PEFT adapter say, and what of it is done here.

Which modules have factors, and how large, is told by the tensors: the names in adapter_config.json may be regular
expressions, which a hostile file can make take for ever, so none is ever tried.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.json_files import read_json
from bertzoo.checkpoints.rules import FLAG, NULL, TEXT, list_of, number, object_of, whole
from bertzoo.checkpoints.tensors import float_tensor, open_tensor_file

TENSORS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
OLD_TENSORS = "adapter_model.bin"
PREFIX = "base_model.model."

RULES = {
    "alpha_pattern": object_of(number()) | NULL,
    "bias": TEXT | NULL,
    "lora_alpha": number(),
    "modules_to_save": list_of(TEXT) | NULL,
    "r": whole(1),
    "rank_pattern": object_of(whole(1)) | NULL,
    "use_rslora": FLAG | NULL,
}
# Done by the tensors' names and shapes alone.
_BY_TENSORS = ("exclude_modules", "layers_to_transform", "layers_pattern", "target_modules")
# Of training, of where the base model lies, and settings of what is refused by another key.
INERT = """
    auto_mapping base_model_name_or_path corda_config eva_config inference_mode loftq_config lora_dropout
    lora_ga_config megatron_core peft_version qalora_group_size revision runtime_config task_type
""".split()  # noqa: SIM905
# How the factors began, where the weights of the base model stayed as they were.
_PLAIN_STARTS = (None, True, False, "default", "gaussian", "eva", "orthogonal")


def read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """adapter_config.json, and the tensors of adapter_model.safetensors, or else of adapter_model.bin, as float32.

    Raises:
        CheckpointError: They can't be read, or ask for what bertzoo does not compute.
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
    alphas = {}
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
