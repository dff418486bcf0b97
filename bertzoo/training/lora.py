"""LoRA: training a few small matrices beside the large ones (Hu et al. 2022), in files that PEFT reads and writes."""

import json
import re
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import keras
import numpy as np
from keras import ops

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.loading import entries_of, weight_names
from bertzoo.checkpoints.names import Entry
from bertzoo.checkpoints.saving import save_tensors, write_preset
from bertzoo.random import get_seed, host_generator

TARGETS = ("query", "value")  # PEFT's choice for BERT, and the paper's (section 4.2)
TENSORS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model."
_TASK_TYPES = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}


@keras.saving.register_keras_serializable("bertzoo")
class LoRADense(keras.layers.Layer):
    """A dense layer and, for each part of its output, two factors: x -> dense(x) + scale × (x A) B, side by side.

    Args:
        dense: The layer, which is built; its weights no longer train.
        parts: For each tensor of Hugging Face's that the kernel joins, whether it gets factors.
        rank: Inner size of the factors.
        scale: What their product is multiplied by.
        labels: A name for each part, on which the initial A depends. B starts at 0.
    """

    def __init__(self, dense, parts: Sequence[bool], rank: int, scale: float, labels: Sequence[str], **kwargs):
        super().__init__(name=f"{dense.name}_lora", dtype=dense.dtype_policy, **kwargs)
        self.dense, self.rank, self.scale = dense, rank, scale
        for weight in dense.weights:
            weight.trainable = False
        inner, outer = dense.kernel.shape[0], dense.kernel.shape[1] // len(parts)
        self.factors: list = []
        for i, (wanted, label) in enumerate(zip(parts, labels)):
            if not wanted:
                self.factors.append(None)
                continue
            # As Kaiming's uniform numbers with a = √5, which PEFT draws: ±1/√inner.
            draws = host_generator(get_seed(), "lora", label).uniform(-1, 1, (inner, rank)) / np.sqrt(inner)
            a = self.add_weight(name=f"lora_a_{i}", shape=(inner, rank), initializer="zeros")
            a.assign(draws.astype("float32"))
            self.factors.append((a, self.add_weight(name=f"lora_b_{i}", shape=(rank, outer), initializer="zeros")))
        self.outer = outer
        self.built = True

    def call(self, x):
        y, parts = self.dense(x), []
        for factors in self.factors:
            if factors is None:
                parts.append(ops.zeros((*ops.shape(x)[:-1], self.outer), y.dtype))
            else:
                parts.append(ops.matmul(ops.matmul(x, factors[0]), factors[1]))
        return y + ops.cast(self.scale, y.dtype) * (parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1))

    def compute_output_shape(self, input_shape):
        return self.dense.compute_output_shape(input_shape)

    def merge(self) -> None:
        """Adds the product of the factors to the kernel."""
        kernel = np.array(ops.convert_to_numpy(self.dense.kernel), dtype="float32")
        for i, factors in enumerate(self.factors):
            if factors is not None:
                a, b = (np.asarray(ops.convert_to_numpy(f), dtype="float32") for f in factors)
                kernel[:, i * self.outer : (i + 1) * self.outer] += self.scale * (a @ b)
        self.dense.kernel.assign(kernel)


def enable_lora(
    task, rank: int = 8, alpha: float = 16.0, targets: Sequence[str] | str = TARGETS, train_head: bool = True
) -> None:
    """Freezes a task's encoder and puts trainable factors beside some of its dense layers. Call it before `compile`.

    Args:
        task: A task, or an `Encoder`.
        rank: Inner size of the factors.
        alpha: The factors' product is scaled by alpha / rank.
        targets: Ends of the names of Hugging Face's modules, such as "query", "value", "dense"; or, as one string, a
            regular expression for whole names, as in PEFT. Fused projections get separate factors for each.
        train_head: The head trains as usual, and is part of the adapter.

    Raises:
        ValueError: The rank is below 1, there is LoRA already, or no layer has such a name.
        re.error: `targets` is no regular expression.
    """
    if rank < 1:
        raise ValueError(f"rank must be at least 1; it is {rank!r}.")
    if lora_layers(task):
        raise ValueError("the model has LoRA factors already: merge_lora puts them into its weights.")
    encoder = getattr(task, "backbone", task)
    names, found = _tensor_names(encoder), []
    prefix = encoder.family.prefix if encoder is not task else ""
    for owner, attribute, dense in _dense_layers(encoder):
        modules = [name.removesuffix(".weight") for name in names.get(_path(dense.kernel), ())]
        parts = [_is_target(module, targets, prefix) for module in modules]
        if any(parts):
            found.append((owner, attribute, dense, modules, parts))
    if not found:
        ends = sorted({name.removesuffix(".weight").split(".")[-1] for theirs in names.values() for name in theirs})
        wanted = targets if isinstance(targets, str) else ", ".join(targets)
        raise ValueError(f"no layer of the encoder is called {wanted}; modules end in {', '.join(ends)}.")
    for weight in task.weights:
        if id(weight) in {id(w) for w in encoder.weights} or not train_head:
            weight.trainable = False
    for owner, attribute, dense, modules, parts in found:
        _replace(owner, attribute, LoRADense(dense, parts, rank, alpha / rank, modules))
    _forget_compiled(task)
    targets = targets if isinstance(targets, str) else list(targets)
    encoder.lora = {"rank": rank, "alpha": alpha, "targets": targets, "train_head": train_head}


def lora_layers(task) -> list[LoRADense]:
    """The layers with factors."""
    return [layer for layer in task._flatten_layers() if isinstance(layer, LoRADense)]


def merge_lora(task) -> None:
    """Adds the factors to the weights, which then compute the same without them and can be saved as a preset. All
    weights train again, but those of frozen layers, once `compile` has been called anew.

    Raises:
        ValueError: There are none.
    """
    for layer in _need(task):
        layer.merge()
    _take_off(task)
    for layer in task._flatten_layers():
        for weight in layer._trainable_variables:  # without BatchNorm's averages, which never train
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
        name = f"{_PREFIX}{prefix}{module}"
        tensors[f"{name}.lora_A.weight"] = np.array(ops.convert_to_numpy(a), dtype="float32").T
        tensors[f"{name}.lora_B.weight"] = np.array(ops.convert_to_numpy(b), dtype="float32").T
    for entry, weight in own:
        value = np.array(ops.convert_to_numpy(weight), dtype="float32")
        tensors.update({f"{_PREFIX}{name}": part for name, part in entry.split(value).items()})
    modules = sorted({name.rsplit(".", 1)[0].split(".")[0] for entry, _ in own for name in entry.theirs} - {"bertzoo"})
    hf_class = encoder.family.heads[heads[0]].hf_class if heads else ""
    config = {
        "peft_type": "LORA",
        "task_type": _TASK_TYPES.get(hf_class),
        "base_model_name_or_path": str(base_model),
        "r": settings["rank"],
        "lora_alpha": settings["alpha"],
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

    Raises:
        CheckpointError: The files are missing, not of plain LoRA, or don't fit the model, or it has LoRA already.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(directory)
    try:
        config = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        tensors = load_file(folder / TENSORS)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} holds no adapter that can be read: {error}.") from error
    _check_settings(config, folder)
    broken = [name for name, tensor in tensors.items() if not np.isfinite(tensor.astype("float32")).all()]
    if broken:
        raise CheckpointError(f"{folder} has NaN or infinity in {', '.join(broken[:5])}.")
    trained = [(weight, weight.trainable) for weight in task.weights]
    has_head = any(not re.search(r"\.lora_[AB]\.", name) for name in tensors)
    try:
        enable_lora(task, config["r"], config["lora_alpha"], config["target_modules"], has_head)
    except (ValueError, re.error) as error:
        raise CheckpointError(f"{folder} does not fit the model: {error}") from error
    try:
        _fill(task, tensors, config, folder)
    except CheckpointError:
        _take_off(task)
        for weight, trains in trained:
            weight.trainable = trains
        raise


def _fill(task, tensors: dict[str, np.ndarray], config: dict, folder: Path) -> None:
    """Checks all tensors against the task, then puts them in."""
    encoder, heads = getattr(task, "backbone", task), getattr(task, "heads", ())
    prefix = encoder.family.prefix if heads else ""
    left = {re.sub(r"\.modules_to_save(\.default)?", "", name).removeprefix(_PREFIX): name for name in tensors}
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
    unknown = sorted(set(tensors) - {name for entry, _ in entries for name in entry.theirs})
    if unknown:
        raise CheckpointError(f"{folder} has tensors that do not fit the model: {', '.join(unknown[:5])}.")
    lacking = [name for entry, _ in entries for name in entry.theirs if name not in tensors]
    needed = [name for name in lacking if _is_needed(name, tensors, config.get("modules_to_save") or ())]
    if needed:
        raise CheckpointError(f"{folder} lacks tensors of the model's head: {', '.join(needed[:5])}.")
    present = [(entry, weight) for entry, weight in entries if set(entry.theirs) <= set(tensors)]
    values = [(weight, entry.join([tensors[name] for name in entry.theirs])) for entry, weight in present]
    for (entry, weight), (_, value) in zip(present, values):
        if value.shape != tuple(weight.shape):
            raise CheckpointError(
                f"{folder} has {', '.join(entry.theirs)} of shape {value.shape}; the model's is {tuple(weight.shape)}."
            )
    return values


def _is_needed(name: str, tensors: Collection[str], modules_to_save: Sequence[str]) -> bool:
    """Whether an adapter with these tensors of the head must have this one too. It may have the head's last layer
    alone, as PEFT's usually do, or nothing of it."""
    module = name.rpartition(".")[0]
    part_of = {other.rpartition(".")[0] for other in tensors} | {*modules_to_save}
    own = name.startswith("bertzoo.") and len(tensors) > 0
    return own or module in part_of or not part_of.isdisjoint(module.split("."))


def _check_settings(config, folder: Path) -> None:
    if not isinstance(config, dict):
        raise CheckpointError(f"{folder / SETTINGS} holds no settings by name, but {config!r:.80}.")
    if config.get("peft_type") != "LORA":
        raise CheckpointError(f"{folder} is a {config.get('peft_type')} adapter; LORA is expected.")
    for key in ("use_dora", "use_rslora", "fan_in_fan_out", "layers_to_transform", "rank_pattern", "alpha_pattern"):
        if config.get(key):
            raise CheckpointError(f"{folder} has {key} = {config[key]!r}, which bertzoo does not compute.")
    for key, kinds in (("r", int), ("lora_alpha", (int, float)), ("target_modules", (list, str))):
        if not isinstance(config.get(key), kinds):
            raise CheckpointError(f"{folder / SETTINGS} has no {key} that can be used; it is {config.get(key)!r}.")
    if config.get("bias", "none") != "none":
        raise CheckpointError(f"{folder} trains biases ({config['bias']!r}), which bertzoo does not read.")


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
    return {entry.ours: entry.theirs for entry in entries_of(_WithoutFactors(encoder), encoder, ())}


class _WithoutFactors:
    """A model as `entries_of` sees it, the factors left out."""

    def __init__(self, task):
        factors = {id(w) for layer in lora_layers(task) for pair in layer.factors if pair for w in pair}
        self.weights = [weight for weight in task.weights if id(weight) not in factors]
        self.custom_head = getattr(task, "custom_head", None)


def _head_entries(task) -> list[tuple[Entry, keras.Variable]]:
    """What a preset of the task holds besides the encoder: names, and the weight."""
    encoder, heads, model = getattr(task, "backbone", task), getattr(task, "heads", ()), _WithoutFactors(task)
    if not heads and model.custom_head is None:
        return []
    weights, inner = weight_names(model), {id(weight) for weight in encoder.weights}
    found = [(entry, weights[entry.ours]) for entry in entries_of(model, encoder, heads)]
    return [(entry, weight) for entry, weight in found if id(weight) not in inner]


def _path(weight) -> str:
    return weight.path.split("/", 1)[1]


def _take_off(task) -> None:
    """Puts the dense layers back in the place of those with factors."""
    encoder = getattr(task, "backbone", task)
    for owner, attribute, layer in _owners(encoder, LoRADense):
        _replace(owner, attribute, layer.dense)
    _forget_compiled(task)
    encoder.lora = None


def _is_target(module: str, targets: Sequence[str] | str, prefix: str) -> bool:
    if isinstance(targets, str):
        return re.fullmatch(targets, prefix + module) is not None
    return any(module == target or module.endswith(f".{target}") for target in targets)


def _forget_compiled(task) -> None:
    # TensorFlow's compiled functions would go on with the layers that were there when they were made.
    task.train_function = task.test_function = task.predict_function = None


def _dense_layers(encoder):
    return _owners(encoder, keras.layers.Dense)


def _owners(encoder, kind: type):
    """(layer, attribute, its value) for every attribute that is a layer of a kind."""
    found = []
    for owner in encoder._flatten_layers():
        if not isinstance(owner, LoRADense):
            # Under PyTorch a layer is a module, which keeps its parts apart from its other attributes.
            attributes = {**vars(owner), **getattr(owner, "_modules", {})}
            found += [(owner, name, value) for name, value in attributes.items() if isinstance(value, kind)]
    return found


def _replace(owner, attribute: str, layer) -> None:
    owner._tracker.unlock()  # Keras locks a layer once it is built; its own LoRA does this too
    old = getattr(owner, attribute)
    place = owner._layers.index(old)
    delattr(owner, attribute)
    owner._tracker.untrack(old)  # deleting makes Keras forget variables only
    setattr(owner, attribute, layer)
    owner._layers.remove(layer)  # it came last: weights are to stay in their order
    owner._layers.insert(place, layer)
    owner._tracker.lock()
