"""Models from checkpoint directories, and back."""

import inspect
import shutil
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np

from bertzoo._keras_hooks import flatten_layers, print_message
from bertzoo.checkpoints.errors import CheckpointError, add_source_to_errors
from bertzoo.checkpoints.files import find_preset_directory
from bertzoo.checkpoints.formats import ReadConfigAndFamily, open_checkpoint
from bertzoo.checkpoints.json_files import encode_json
from bertzoo.checkpoints.names import (
    Family,
    WeightMapping,
    find_wrapper_prefix,
    normalize_tensor_name,
    respell,
    weight_table,
)
from bertzoo.checkpoints.saving import Content, write_preset
from bertzoo.checkpoints.tensors import (
    INT8_FILE,
    WEIGHT_FILES,
    LazyTensors,
    build_weight_files,
    open_tensors_in_directory,
    save_tensors,
    to_finite_float32,
)
from bertzoo.layers.base import skip_random_initialization

SCALE = "_scale"  # the suffix of the tensor by which int8 codes are divided to get the weights
_NUMPY = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64}


@dataclass
class LoadReport:
    """What a load did: tensors loaded, parts newly initialised, and tensors of the file that were not used."""

    source: str
    loaded: int = 0
    new: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.loaded} tensors loaded"]
        lists = {
            "newly initialised (expected before fine-tuning, which trains them)": self.new,
            "in the file, not used here (such as the head of another task)": self.unused,
        }
        for title, names in lists.items():
            if names:
                more = f" and {len(names) - 6} more" if len(names) > 6 else ""
                lines.append(f"  {title}: {', '.join(names[:6])}{more}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def weights_by_name(model: keras.Model) -> dict[str, keras.Variable]:
    """The weights of a model by their path within their part, such as "layer_0/attention/qkv/kernel".

    Those of a user's own head are numbered, since its layers may have any names.
    """
    custom = {id(weight): f"custom_head/{i}" for i, weight in enumerate(_custom_weights(model))}
    return {custom.get(id(weight)) or weight.path.split("/", 1)[1]: weight for weight in model.weights}


def _custom_weights(model: keras.Model) -> list[keras.Variable]:
    head = getattr(model, "custom_head", None)
    return [] if head is None else head.weights


def map_weights_to_tensors(
    model: keras.Model, encoder: keras.Model, head_names: tuple[str, ...], *, ignored_ids: Container[int] = ()
) -> list[WeightMapping]:
    """The tensors in which a file holds each weight of a model made of an encoder and heads of its family.

    Args:
        model: The encoder itself, or a model around it.
        encoder: The encoder.
        head_names: The family's heads that the model has.
        ignored_ids: The ids of weights that files need not hold.

    Raises:
        CheckpointError: A weight has no name in files, as LoRA's factors.
    """
    weights = weights_by_name(model)
    entries = [
        entry for entry in weight_table(encoder.family, encoder.config, head_names) if entry.keras_name in weights
    ]
    entries += getattr(model, "head_mappings", [])  # of a head that no family has
    for i, weight in enumerate(_custom_weights(model)):
        entries.append(WeightMapping(f"custom_head/{i}", (f"bertzoo.head.{i}.{weight.name}",)))
    unnamed = {n for n, weight in weights.items() if not n.endswith(SCALE) and id(weight) not in ignored_ids}
    unnamed -= {entry.keras_name for entry in entries}
    if unnamed:
        raise CheckpointError(
            f"a checkpoint has no place for the weights {', '.join(sorted(unnamed)[:5])}. If they are LoRA's, call "
            "merge_lora first, or, where the layers beneath are int8, write them with save_adapter."
        )
    return entries


def load_model(
    preset: str | Path,
    read_config_and_family: ReadConfigAndFamily,
    make_model: Callable[[Any, Path], keras.Model],
    *,
    head_names: tuple[str, ...] = (),
    reinitialize_heads: bool = False,
    verbose: bool = True,
) -> keras.Model:
    """Makes a model for a checkpoint and fills it.

    Args:
        preset: A bundled name, a directory, or `hf://owner/name[@revision]`.
        read_config_and_family: Makes the configuration, and finds the family, from the content of config.json.
        make_model: Makes the model, an encoder or one with `backbone`, from the configuration and the directory.
        head_names: The family's heads that the model has.
        reinitialize_heads: Initialise the heads anew even where the file has them.
        verbose: Print the load report. It stays as `model.load_report` in any case.

    Returns:
        What `make_model` made, with `load_report` and `checkpoint_dtypes`, the types of the file's tensors by name.

    Raises:
        CheckpointError: A tensor is missing, misshapen or not finite, or the files can't be read.
    """
    directory = find_preset_directory(preset)
    with add_source_to_errors(directory), open_checkpoint(directory, read_config_and_family, head_names) as checkpoint:
        family = checkpoint.family
        report = LoadReport(str(preset), notes=list(checkpoint.notes))
        file_keys = _file_keys(checkpoint.tensors, family, report)
        tensors = respell(checkpoint.tensors.renamed(file_keys), file_keys, family, checkpoint.config, head_names)
        config = family.complete_config_from_tensors(checkpoint.config, tensors)
        table = weight_table(family, config, () if reinitialize_heads else head_names)
        held = {entry.keras_name for entry in table if entry.has_all_tensors(tensors)}
        with skip_random_initialization(lambda path: path.split("/", 1)[-1] in held):
            model = make_model(config, directory)
        report.new = _fill(model, tensors, head_names, reinitialize_heads)
        report.loaded = len(model.checkpoint_dtypes)
        unused = (
            name for name in file_keys if name not in model.checkpoint_dtypes and not family.is_ignored_tensor(name)
        )
        report.unused = sorted(file_keys[name] for name in unused)
        _note(report, config, file_keys)
    model.load_report = report
    if verbose:
        print_message(str(report))
    return model


def _file_keys(tensors: Iterable[str], family: Family, report: LoadReport) -> dict[str, str]:
    """The table's names of the tensors in a file -> the file's names."""
    wrapper = find_wrapper_prefix(tensors, family.prefix)
    if wrapper:
        report.notes.append(f"all names in the file begin with {wrapper!r}, of what held the model; it was taken off")
    file_keys: dict[str, str] = {}
    for name in tensors:
        other = file_keys.setdefault(normalize_tensor_name(name.removeprefix(wrapper), family), name)
        if other != name:
            raise CheckpointError(f"the file holds one tensor twice, as {other} and as {name}.")
    for alias, name in family.tensor_aliases.items():
        if alias in file_keys:
            file_keys.setdefault(name, file_keys[alias])
        elif name in file_keys:  # an untied decoder has its bias under the other name
            file_keys[alias] = file_keys[name]
    return file_keys


def _fill(model: keras.Model, tensors: LazyTensors, head_names: tuple[str, ...], reinitialize_heads: bool) -> list[str]:
    """Fills a model's weights from the tensors of a file; -> the parts that the file does not have."""
    encoder = getattr(model, "backbone", model)
    entries = map_weights_to_tensors(model, encoder, head_names)
    _quantize_as_stored(model, entries, tensors, weights_by_name(encoder if reinitialize_heads else model))
    weights = weights_by_name(model)  # quantized kernels are other variables
    entries += _scale_entries(entries, weights)
    encoder_ids = {id(weight) for weight in encoder.weights}
    encoder_names = {name for name, weight in weights.items() if id(weight) in encoder_ids}
    loaded = [
        e for e in entries if e.has_all_tensors(tensors) and (not reinitialize_heads or e.keras_name in encoder_names)
    ]
    model.checkpoint_dtypes = {}
    for entry in loaded:
        weight = weights[entry.keras_name]
        weight.assign(entry.to_keras_weight(_read(entry, weight, tensors)))
        model.checkpoint_dtypes |= {name: tensors.safetensors_dtype(name) for name in entry.hf_names}
    missing = [e for e in entries if e not in loaded and e.part_name not in encoder.family.computed_parts]
    return _new_parts(entries, missing, encoder_names)


def _quantize_as_stored(
    model: keras.Model, entries: Iterable[WeightMapping], tensors: LazyTensors, weights: Mapping[str, keras.Variable]
) -> None:
    """Quantizes the layers whose kernels, among `weights`, the file holds as int8 codes."""
    layers = {id(layer.kernel): layer for layer in flatten_layers(model) if isinstance(layer, keras.layers.Dense)}
    for entry in entries:
        layer = layers.get(id(weights.get(entry.keras_name)))
        is_int8 = entry.has_all_tensors(tensors) and all(
            tensors.safetensors_dtype(name) == "I8" for name in entry.hf_names
        )
        if is_int8 and layer is not None and layer.quantization_mode is None:
            layer.quantize("int8")


def _scale_entries(entries: Iterable[WeightMapping], weights: Container[str]) -> list[WeightMapping]:
    """The entries of the scales of those kernels that are quantized, float32 (units,)."""
    return [
        WeightMapping(entry.keras_name + SCALE, tuple(name + SCALE for name in entry.hf_names), entry.widths)
        for entry in entries
        if entry.keras_name + SCALE in weights
    ]


def _read(entry: WeightMapping, weight: keras.Variable, tensors: LazyTensors) -> list[np.ndarray]:
    arrays = [tensors[name] for name in entry.hf_names]
    expected = entry.to_file_tensors(np.broadcast_to(np.float32(0), weight.shape))
    for name, array in zip(entry.hf_names, arrays):
        if array.shape != expected[name].shape:
            hint = " Pass new_head=True to start with a new head." * name.startswith(("classifier", "bertzoo.head"))
            raise CheckpointError(
                f"tensor {name} has shape {array.shape}; {expected[name].shape} is expected by the configuration.{hint}"
            )
        if entry.keras_name.endswith(SCALE) and not (array > 0).all():
            raise CheckpointError(f"tensor {name} must hold positive scales of int8 codes.")
    if weight.dtype == "int8":
        return arrays
    return [to_finite_float32(array, f"tensor {name}") for name, array in zip(entry.hf_names, arrays)]


def _new_parts(entries: list[WeightMapping], missing: list[WeightMapping], encoder_names: Container[str]) -> list[str]:
    """The parts that the file does not have: the pooler or heads, which may be absent as a whole.

    Raises:
        CheckpointError: Anything else is absent.
    """
    new, lost = [], []
    for part in {entry.part_name for entry in missing}:
        absent = [entry for entry in missing if entry.part_name == part]
        is_whole = len(absent) == sum(entry.part_name == part for entry in entries)
        if is_whole and (part == "pooler" or absent[0].keras_name not in encoder_names):
            new.append(part)
        else:
            lost += [name for entry in absent for name in entry.hf_names]
    if lost:
        raise CheckpointError(
            f"the checkpoint lacks {len(lost)} tensors that this model needs: {', '.join(sorted(lost)[:8])}."
        )
    return sorted(new)


def _note(report: LoadReport, config: Any, file_keys: Mapping[str, str]) -> None:
    old = [key for key in file_keys.values() if key.endswith(("LayerNorm.gamma", "LayerNorm.beta"))]
    if old:
        report.notes.append(
            f"{len(old)} LayerNorm tensors have their old names, gamma and beta; saved as weight and bias"
        )
    if config.attention_probs_dropout_prob:
        report.notes.append(
            f"attention dropout is off in training (the file's {config.attention_probs_dropout_prob:g} is kept when "
            "saved); pass attention_dropout= to use it"
        )
    if config.unknown_keys:
        report.notes.append(f"config.json has keys unknown to bertzoo: {', '.join(config.unknown_keys)}")


def quantized_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """The layers whose kernel is quantized."""
    return [layer for layer in flatten_layers(model) if getattr(layer, "quantization_mode", None)]


def file_tensors(
    model: keras.Model, encoder: keras.Model, head_names: tuple[str, ...], ignored_ids: Container[int] = ()
) -> dict[str, np.ndarray]:
    """All tensors of a model under the file's names, in the dtypes it was loaded with where these hold it exactly."""
    for layer in quantized_layers(model):
        if layer.quantization_mode != "int8" or not isinstance(layer, keras.layers.Dense):
            raise CheckpointError(
                f"a preset holds int8 layers only. Received: {layer.path}, quantized as {layer.quantization_mode}. "
                "Save the model as a .keras file."
            )
    weights, prefix = weights_by_name(model), encoder.family.prefix if head_names else ""
    in_heads = {name for head in head_names for name, _ in encoder.family.head_tensor_names(encoder.config, head)}
    entries = map_weights_to_tensors(model, encoder, head_names, ignored_ids=ignored_ids)
    tensors: dict[str, np.ndarray] = {}
    keys: dict[str, str] = {}
    for entry in [*entries, *_scale_entries(entries, weights)]:
        own = entry.keras_name.removesuffix(SCALE) in in_heads or entry.part_name == "custom_head"
        keys |= {name: name if own else prefix + name for name in entry.hf_names}
        value = keras.ops.convert_to_numpy(weights[entry.keras_name])
        tensors |= entry.to_file_tensors(value if value.dtype == np.int8 else value.astype(np.float32, copy=False))
    tensors = _narrowed(tensors, getattr(model, "checkpoint_dtypes", {})) or tensors
    return {keys[name]: tensor for name, tensor in tensors.items()}


def _narrowed(tensors: Mapping[str, np.ndarray], dtypes: Mapping[str, str]) -> dict[str, np.ndarray] | None:
    """The tensors in the dtypes of the file, or None where that would lose a bit of any."""
    narrow = {}
    for name, tensor in tensors.items():
        dtype = _NUMPY.get(dtypes.get(name, "F32"), np.float32)
        narrow[name] = tensor if tensor.dtype == np.int8 else tensor.astype(dtype)
        if not np.array_equal(narrow[name].astype(np.float32), tensor):
            return None
    return narrow


def save_model(
    model: keras.Model,
    directory: str | Path,
    *,
    head_names: tuple[str, ...] = (),
    hf_class_suffix: str = "Model",
    config_changes: Mapping[str, Any] | None = None,
    tokenizer: Any = None,
    extra_files: Mapping[str, Content] | None = None,
    folder: str = "",
    ignored: Iterable[keras.Variable] = (),
) -> None:
    """Writes a model as a Hugging Face checkpoint directory, all of it or nothing.

    Args:
        model: An encoder, or a model with one as `backbone`.
        directory: Where to; made if need be. An older preset there is replaced, other files in it are kept.
        head_names: The family's heads that the model has.
        hf_class_suffix: What follows the family's name in the name of Hugging Face's class.
        config_changes: Keys of config.json that the task owns.
        tokenizer: A `Tokenizer`, written as tokenizer.json and tokenizer_config.json.
        extra_files: What else belongs to the model, as `write_preset` takes it.
        folder: The folder of the directory for the model itself; the directory where it is empty.
        ignored: Weights that `extra_files` hold.

    Raises:
        CheckpointError: A weight has no name in files, or the directory can't be written.
    """
    encoder = getattr(model, "backbone", model)
    tensors = file_tensors(model, encoder, head_names, {id(weight) for weight in ignored})
    content = encoder.config.to_hf()
    content.update(config_changes or {}, architectures=[encoder.family.hf_name + hf_class_suffix])
    if not content.get("bertzoo"):
        content.pop("bertzoo", None)
    content.pop("torch_dtype", None)
    kinds = {tensor.dtype.name for tensor in tensors.values()} - {"int8"}
    content["dtype"] = kinds.pop() if len(kinds) == 1 else "float32"
    files: dict[str, Content] = dict(build_weight_files(tensors))
    if any(tensor.dtype == np.int8 for tensor in tensors.values()):
        # transformers does not know this file, and reports that there are no weights; from model.safetensors it would
        # read the codes as weights, or skip them and start with random ones.
        files = {INT8_FILE: partial(save_tensors, tensors=tensors)}
    files["config.json"] = encode_json(content)
    if tokenizer is not None:
        files.update(tokenizer.file_contents())
    if folder:
        files = {f"{folder}/{name}": content for name, content in files.items()}
    write_preset(Path(directory), files | dict(extra_files or {}))


def check_constructor_options(layer_class: type[keras.layers.Layer], option_names: Iterable[str]) -> None:
    """Refuses what the constructor of a class does not take.

    Raises:
        TypeError: An option is unknown.
    """
    known = {"dtype", *[*inspect.signature(layer_class.__init__).parameters][1:]} - {"kwargs", "config", "backbone"}
    unknown = sorted(set(option_names) - known)
    if unknown:
        raise TypeError(
            f"{layer_class.__name__}.from_preset has no option {', '.join(unknown)}; "
            f"it takes {', '.join(sorted(known))}."
        )


def take_encoder_options(
    layer_class: type[keras.layers.Layer],
    options: dict[str, Any],
    names: Sequence[str] = ("dropout", "attention_dropout", "remat"),
) -> dict[str, Any]:
    """Takes the options of `from_preset` that are an encoder's out of all, and returns them, with the dtype, which is
    also the constructor's.

    Args:
        layer_class: The class that the other options are for.
        options: All options.
        names: Those of the encoder.

    Raises:
        TypeError: An option is unknown.
    """
    of_encoder = {name: options.pop(name) for name in names if name in options}
    check_constructor_options(layer_class, options)
    return of_encoder | {name: value for name, value in options.items() if name == "dtype" and value}


def dequantize_preset(source_directory: Path, target_directory: Path) -> None:
    """Copies a preset, with float32 weights in place of codes.

    Raises:
        CheckpointError: The weights are not int8.
    """
    if next((name for name in WEIGHT_FILES if (source_directory / name).is_file()), None) != INT8_FILE:
        raise CheckpointError(f"{source_directory} has no {INT8_FILE}: its weights are not int8.")
    shutil.copytree(source_directory, target_directory, ignore=shutil.ignore_patterns(INT8_FILE))
    with open_tensors_in_directory(source_directory) as tensors:
        floats = {}
        for name in tensors:
            if tensors.safetensors_dtype(name) == "I8":
                floats[name] = tensors[name].astype(np.float32) / tensors[name + SCALE][:, None]
            elif name.removesuffix(SCALE) == name or name.removesuffix(SCALE) not in tensors:
                floats[name] = tensors[name]
        write_preset(target_directory, build_weight_files(floats))
