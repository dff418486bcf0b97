"""LoRA: training a few small matrices beside the large ones (Hu et al. 2022), in files that PEFT reads and writes."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import own_trainable_variables, replace_sublayer, sublayers
from bertzoo.adapters.lora_layer import LoRADense
from bertzoo.adapters.peft_files import PREFIX, SETTINGS, TENSORS, lora_options, read_adapter
from bertzoo.checkpoints.errors import CheckpointError, error_source
from bertzoo.checkpoints.files import resolve_adapter
from bertzoo.checkpoints.int8 import quantization_scales
from bertzoo.checkpoints.loading import weight_map, weight_names
from bertzoo.checkpoints.names import Entry
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import save_tensors

# The projections of queries and values (section 4.2 of the paper), as PEFT's choice where it has one.
TARGETS = {
    "bert": ("query", "value"),
    "deberta": ("in_proj",),
    "deberta-v2": ("query_proj", "value_proj"),
    "distilbert": ("q_lin", "v_lin"),
    "modernbert": ("Wqkv",),
    "mpnet": ("q", "v"),
}
_TASK_TYPES = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}


def enable_lora(
    task,
    rank: int = 8,
    alpha: float = 16.0,
    targets: Sequence[str] | str | None = None,
    train_head: bool = True,
    *,
    use_rslora: bool = False,
    rank_pattern: Mapping[str, int] | None = None,
    alpha_pattern: Mapping[str, float] | None = None,
) -> None:
    """Freezes a task's encoder and puts trainable factors beside some of its dense layers. Call it before `compile`.

    Args:
        task: A task, or an `Encoder`.
        rank: Inner size of the factors.
        alpha: The factors' product is scaled by alpha / rank.
        targets: Ends of the names of Hugging Face's modules, such as "query", "value", "dense"; or, as one string, a
            regular expression for whole names, as in PEFT. Fused projections get separate factors for each. Where None,
            the projections of queries and values.
        train_head: The head trains as usual, and is part of the adapter.
        use_rslora: Scale by alpha / √rank (Kalajdzievski 2023).
        rank_pattern, alpha_pattern: Module, or the end of its name -> its own rank or alpha.

    Raises:
        ValueError: A rank is below 1, there is LoRA already, or no layer has such a name.
        re.error: `targets` is no regular expression.
    """
    rank_pattern, alpha_pattern = dict(rank_pattern or {}), dict(alpha_pattern or {})
    for value in (rank, *rank_pattern.values()):
        if type(value) is bool or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"rank must be at least 1, and whole; it is {value!r}.")
    if lora_layers(task):
        raise ValueError("the model has LoRA factors already: merge_lora puts them into its weights.")
    encoder = getattr(task, "backbone", task)
    names, found = _tensor_names(encoder), []
    prefix = encoder.family.prefix if encoder is not task else ""
    targets = TARGETS.get(encoder.family.model_type, TARGETS["bert"]) if targets is None else targets

    def settings_of(module: str) -> tuple[int, float]:
        own = int(_by_name(rank_pattern, prefix + module, rank))
        return own, _by_name(alpha_pattern, prefix + module, alpha) / (own**0.5 if use_rslora else own)

    for owner, attribute, dense in _dense_layers(encoder):
        modules = [name.removesuffix(".weight") for name in names.get(_path(dense.kernel), ())]
        parts = [settings_of(module) if _is_target(prefix + module, targets) else None for module in modules]
        if any(parts):
            found.append((owner, attribute, dense, modules, parts))
    if not found:
        ends = sorted({name.removesuffix(".weight").split(".")[-1] for theirs in names.values() for name in theirs})
        wanted = targets if isinstance(targets, str) else ", ".join(targets)
        raise ValueError(f"no layer of the encoder is called {wanted}; modules end in {', '.join(ends)}.")
    trained = [(weight, weight.trainable) for weight in task.weights]
    try:
        layers = [LoRADense(dense, parts, modules) for _, _, dense, modules, parts in found]
    except BaseException:  # of memory too
        for weight, trains in trained:
            weight.trainable = trains
        raise
    for weight in task.weights:
        if id(weight) in {id(w) for w in encoder.weights} or not train_head:
            weight.trainable = False
    for (owner, attribute, *_), layer in zip(found, layers):
        replace_sublayer(owner, attribute, layer)
    _forget_compiled(task)
    if isinstance(targets, str):  # files keep names: another's expression may take for ever
        targets = [
            prefix + module for *_, modules, parts in found for module, part in zip(modules, parts) if part is not None
        ]
    encoder.lora = {
        "rank": int(rank),
        "alpha": alpha,
        "targets": list(targets),
        "train_head": train_head,
        "use_rslora": use_rslora,
        "rank_pattern": rank_pattern,
        "alpha_pattern": alpha_pattern,
    }


def lora_layers(task) -> list[LoRADense]:
    """The layers with factors."""
    return [layer for layer in sublayers(task) if isinstance(layer, LoRADense)]


def merge_lora(task) -> None:
    """Adds the factors to the weights, which then compute the same without them and can be saved as a preset. All
    weights train again, but those of frozen layers, once `compile` has been called anew.

    Raises:
        ValueError: There are none.
    """
    for layer in _need(task):
        layer.merge()
    _take_off(task)
    for layer in sublayers(task):
        for weight in own_trainable_variables(layer):  # without BatchNorm's averages, which never train
            weight.trainable = layer.trainable


def save_adapter(task, directory: str | Path, base_model: str = "") -> None:
    """Writes the factors, and the head if it trains, as a PEFT adapter that `peft.PeftModel.from_pretrained` loads.

    What PEFT has no form for, a CRF or a head of the caller's own, is in the file too, as tensors `bertzoo.head.*`.

    Args:
        task: A task with LoRA.
        directory: Where to.
        base_model: What PEFT is to load them on.

    Raises:
        ValueError: There are no factors, or a weight trains that is neither of them nor of the head.
    """
    _need(task)
    encoder = getattr(task, "backbone", task)
    settings = encoder.lora
    heads = getattr(task, "heads", ())
    prefix = encoder.family.prefix if heads else ""
    tensors, own = {}, _head_entries(task) if settings["train_head"] else []
    _check_all_saved(task, [weight for _, weight in own])
    for module, (a, b) in _factors(task).items():
        name = f"{PREFIX}{prefix}{module}"
        tensors[f"{name}.lora_A.weight"] = np.array(ops.convert_to_numpy(a), dtype="float32").T
        tensors[f"{name}.lora_B.weight"] = np.array(ops.convert_to_numpy(b), dtype="float32").T
    for entry, weight in own:
        value = np.array(ops.convert_to_numpy(weight), dtype="float32")
        tensors.update({f"{PREFIX}{name}": part for name, part in entry.split(value).items()})
    modules = sorted(
        {name.rsplit(".", 1)[0].split(".")[0] for entry, _ in own for name in entry.hf_names} - {"bertzoo"}
    )
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
        "modules_to_save": modules or None,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    content = (json.dumps(config, indent=2) + "\n").encode()
    write_preset(Path(directory), {SETTINGS: content, TENSORS: partial(save_tensors, tensors=tensors)})


def load_adapter(task, directory: str | Path) -> None:
    """Puts a PEFT LoRA adapter on a task: factors, and the head if the file has it. Where it fails, the task is as it
    was.

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
            _take_off(task)
        for weight, trains in trained:
            weight.trainable = trains
        raise


def _check_shapes(encoder, tensors: Mapping[str, np.ndarray], prefix: str, folder: Path) -> None:
    """Compares the factors with the layers before memory is taken for them."""
    names = _tensor_names(encoder)
    for _, _, dense in _dense_layers(encoder):
        modules = names.get(_path(dense.kernel), ())
        inner, outer = dense.kernel.shape[0], dense.kernel.shape[1] // max(len(modules), 1)
        for module in modules:
            name = f"{PREFIX}{prefix}{module.removesuffix('.weight')}.lora_"
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
    for module, factors in _factors(task).items():
        for letter, factor in zip("AB", factors):
            name = left.pop(f"{prefix}{module}.lora_{letter}.weight", None)
            if name is None or tensors[name].T.shape != tuple(factor.shape):
                shape = tuple(factor.shape)[::-1]
                raise CheckpointError(f"{folder} lacks lora_{letter} of {module} with shape {shape}.")
            found.append((factor, tensors[name].T))
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


def _need(task) -> list[LoRADense]:
    layers = lora_layers(task)
    if not layers:
        raise ValueError("the model has no LoRA factors: call enable_lora first.")
    return layers


def _check_all_saved(task, head: list) -> None:
    """Refuses an adapter that would lack what was trained."""
    # The layer of a sentence loss is thrown away after training.
    kept = [*head, *getattr(getattr(task, "training_head", None), "weights", ())]
    known = {id(weight) for weight in kept} | {id(w) for pair in _factors(task).values() for w in pair}
    lost = [weight.path for weight in task.trainable_weights if id(weight) not in known]
    if lost:
        raise ValueError(
            f"an adapter has no place for {', '.join(lost[:5])}, which train: freeze them (enable_lora with "
            "train_head=False does so with a head), or call merge_lora and save_to_preset."
        )


def _factors(task) -> dict[str, tuple]:
    """Hugging Face's module -> its two factors."""
    names = _tensor_names(getattr(task, "backbone", task))
    found = {}
    for layer in lora_layers(task):
        for name, factors in zip(names[_path(layer.dense.kernel)], layer.factors):
            if factors is not None:
                found[name.removesuffix(".weight")] = factors
    return found


def _tensor_names(encoder) -> dict[str, tuple[str, ...]]:
    """The encoder's weights -> Hugging Face's tensors."""
    return {entry.keras_name: entry.hf_names for entry in weight_map(_WithoutFactors(encoder), encoder, ())}


class _WithoutFactors:
    """A model as `weight_map` sees it, the factors and the scales of quantized kernels left out."""

    def __init__(self, task):
        other = {id(w) for layer in lora_layers(task) for pair in layer.factors if pair for w in pair}
        other |= {id(w) for w in quantization_scales(task)}
        self.weights = [weight for weight in task.weights if id(weight) not in other]
        self.custom_head = getattr(task, "custom_head", None)

    def _flatten_layers(self) -> list:
        return []


def _head_entries(task) -> list[tuple[Entry, keras.Variable]]:
    """What a preset of the task holds besides the encoder: names, and the weight."""
    encoder, heads, model = getattr(task, "backbone", task), getattr(task, "heads", ()), _WithoutFactors(task)
    if not heads and model.custom_head is None:
        return []
    weights, inner = weight_names(model), {id(weight) for weight in encoder.weights}
    found = [(entry, weights[entry.keras_name]) for entry in weight_map(model, encoder, heads)]
    return [(entry, weight) for entry, weight in found if id(weight) not in inner]


def _path(weight) -> str:
    return weight.path.split("/", 1)[1]


def _take_off(task) -> None:
    """Puts the dense layers back in the place of those with factors."""
    encoder = getattr(task, "backbone", task)
    for owner, attribute, layer in _owners(encoder, LoRADense):
        replace_sublayer(owner, attribute, layer.dense)
    _forget_compiled(task)
    encoder.lora = None


def _is_target(module: str, targets: Sequence[str] | str) -> bool:
    if isinstance(targets, str):
        return re.fullmatch(targets, module) is not None
    return any(_is_called(module, target) for target in targets)


def _is_called(module: str, name: str) -> bool:
    return module == name or module.endswith(f".{name}")


def _by_name(values: Mapping, module: str, usual):
    """The value of the first name that is the module's or the end of it."""
    return next((value for name, value in values.items() if _is_called(module, name)), usual)


def _forget_compiled(task) -> None:
    # TensorFlow's compiled functions would go on with the layers that were there when they were made.
    task.train_function = task.test_function = task.predict_function = None
    task.compiled = False  # its optimizer has the moments of other weights


def _dense_layers(encoder):
    return _owners(encoder, keras.layers.Dense)


def _owners(encoder, kind: type):
    """(layer, attribute, its value) for every attribute that is a layer of a kind."""
    found = []
    for owner in sublayers(encoder):
        if not isinstance(owner, LoRADense):
            # Under PyTorch a layer is a module, which keeps its parts apart from its other attributes.
            attributes = {**vars(owner), **getattr(owner, "_modules", {})}
            found += [(owner, name, value) for name, value in attributes.items() if isinstance(value, kind)]
    return found
