"""Models from checkpoint directories, and back."""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np

from bertzoo.checkpoints.errors import CheckpointError, named
from bertzoo.checkpoints.files import resolve
from bertzoo.checkpoints.formats import open_checkpoint
from bertzoo.checkpoints.int8 import (
    SCALE,
    quantization_scales,
    quantize_as_stored,
    read_codes,
    scales_of,
    weight_files,
)
from bertzoo.checkpoints.names import Entry, canonical, expand, wrapper_of
from bertzoo.checkpoints.report import LoadReport
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import float_tensor
from bertzoo.layers.base import skip_drawing
from bertzoo.models.config import EncoderConfig
from bertzoo.models.family import Names

_NUMPY = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64}


def weight_names(model: keras.Model) -> dict[str, keras.Variable]:
    """The weights of a model by their path within their part, such as "layer_0/attention/qkv/kernel".

    Those of a head of the caller's own are counted, since its layers may have any names.
    """
    own = {id(weight): f"custom_head/{i}" for i, weight in enumerate(_custom_weights(model))}
    return {own.get(id(weight)) or weight.path.split("/", 1)[1]: weight for weight in model.weights}


def _custom_weights(model: keras.Model) -> list[keras.Variable]:
    head = getattr(model, "custom_head", None)
    return [] if head is None else head.weights


def entries_of(model: keras.Model, encoder: keras.Model, heads: tuple[str, ...]) -> list[Entry]:
    """How the file names all weights of a model made of an encoder and heads of its family.

    Raises:
        CheckpointError: A weight has no name, as LoRA's factors.
    """
    weights = weight_names(model)
    entries = [entry for entry in _table(encoder.family, encoder.config, heads) if entry.ours in weights]
    for i, weight in enumerate(_custom_weights(model)):
        entries.append(Entry(f"custom_head/{i}", (f"bertzoo.head.{i}.{weight.name}",)))
    scales = {id(scale) for scale in quantization_scales(model)}
    unnamed = {name for name, weight in weights.items() if id(weight) not in scales}
    unnamed -= {entry.ours for entry in entries}
    if unnamed:
        raise CheckpointError(
            f"a checkpoint has no place for the weights {', '.join(sorted(unnamed)[:5])}. If they are LoRA's, call "
            "merge_lora first, or, where the layers beneath are int8, write them with save_adapter."
        )
    return entries


def _table(family, config: EncoderConfig, heads: tuple[str, ...]) -> list[Entry]:
    names: Names = sum((family.names_of_head(config, head) for head in heads), family.names)
    return expand(names, family.counts(config))


def load_model(
    preset: str | Path,
    make: Callable[[EncoderConfig, Path], keras.Model],
    *,
    heads: tuple[str, ...] = (),
    new_heads: bool = False,
    verbose: bool = True,
) -> keras.Model:
    """Makes a model for a checkpoint and fills it.

    Args:
        preset: A bundled name, a directory, or `hf://owner/name[@revision]`.
        make: Makes the model from the configuration and the directory. It is an `Encoder`, or has one as `backbone`.
        heads: The family's heads that the model has.
        new_heads: Start the heads anew even where the file has them.
        verbose: Print the load report. It stays as `model.load_report` in any case.

    Raises:
        CheckpointError: A tensor is missing, misshapen or not finite, or the files can't be read.
    """
    directory = resolve(preset)
    with named(directory), open_checkpoint(directory, heads) as checkpoint:
        config, tensors = checkpoint.config, checkpoint.tensors
        report = LoadReport(str(preset), notes=list(checkpoint.notes))
        stored = _canonical_names(tensors, config_family(config), report)
        config = config_family(config).infer_config_from_tensors(config, stored)
        with skip_drawing(_Covered(config, heads if not new_heads else (), stored)):
            model = make(config, directory)
        encoder = getattr(model, "backbone", model)
        entries = entries_of(model, encoder, heads)
        wanted = [entry for entry in entries if not (new_heads and entry.ours.split("/")[0] in heads)]
        quantize_as_stored(model, wanted, tensors, stored, weight_names(model))
        _fill(model, entries, tensors, stored, new_heads, report)
        _note(report, config, stored, set(model.checkpoint_dtypes), encoder.family)
    model.load_report = report
    if verbose:
        print(report)
    return model


def _canonical_names(tensors: Iterable[str], family, report: LoadReport) -> dict[str, str]:
    """The table's names of the tensors in a file -> the file's."""
    rename = canonical(family.prefix, *family.former_prefixes)
    wrapper = wrapper_of(tensors, family.prefix)
    if wrapper:
        report.notes.append(f"all names in the file begin with {wrapper!r}, of what held the model; it was taken off")
    stored: dict[str, str] = {}
    for name in tensors:
        other = stored.setdefault(rename(name.removeprefix(wrapper)), name)
        if other != name:
            raise CheckpointError(f"the file holds one tensor twice, as {other} and as {name}.")
    for alias, name in family.aliases.items():
        if alias in stored:
            stored.setdefault(name, stored[alias])
        elif name in stored:  # an untied decoder has its bias under the other name
            stored[alias] = stored[name]
    return stored


def config_family(config: EncoderConfig):
    """The family of a configuration."""
    from bertzoo.models.registry import FAMILIES

    return FAMILIES[config.model_type]


class _Covered:
    """The names of weights that the file holds: `"encoder/layer_0/…" in covered`."""

    def __init__(self, config: EncoderConfig, heads: tuple[str, ...], stored: dict[str, str]):
        table = _table(config_family(config), config, heads)
        self.names = {entry.ours for entry in table if set(entry.theirs) <= set(stored)}

    def __contains__(self, path: str) -> bool:
        return path.split("/", 1)[-1] in self.names


def _fill(model, entries, tensors, stored, new_heads, report) -> None:
    weights = weight_names(model)
    encoder_weights = {id(weight) for weight in getattr(model, "backbone", model).weights}
    model.checkpoint_dtypes = {}
    missing, scales = [], scales_of(model)
    for entry in entries:
        in_encoder = id(weights[entry.ours]) in encoder_weights
        if (not in_encoder and new_heads) or not set(entry.theirs) <= set(stored):
            missing.append(entry)
            continue
        weight, names = weights[entry.ours], entry.theirs
        if id(weight) in scales:
            codes, scale = read_codes(entry, tensors, stored)
            if codes.shape != tuple(weight.shape):
                raise CheckpointError(
                    f"{entry.theirs} have the shape {codes.shape}, joined; {weight.shape} is expected."
                )
            weight.assign(codes)
            scales[id(weight)].assign(scale)
            names = (*names, *(name + SCALE for name in names))
        else:
            weight.assign(_read(entry, weight, tensors, stored))
        for name in names:
            model.checkpoint_dtypes[name] = tensors.dtype(stored[name])
    report.loaded = len(model.checkpoint_dtypes)
    _check_missing(missing, entries, weights, encoder_weights, report)


def _read(entry: Entry, weight: keras.Variable, tensors, stored) -> np.ndarray:
    parts = [tensors[stored[name]] for name in entry.theirs]
    expected = entry.split(np.broadcast_to(np.float32(0), weight.shape))
    for name, part in zip(entry.theirs, parts):
        if part.shape != expected[name].shape:
            raise CheckpointError(
                f"tensor {stored[name]} has shape {tuple(part.shape)}; the configuration asks for "
                f"{expected[name].shape}."
                + (
                    " Pass new_head=True to start with a new head."
                    if name.startswith(("classifier", "bertzoo.head"))
                    else ""
                )
            )
    return entry.join([float_tensor(part, f"tensor {stored[name]}") for name, part in zip(entry.theirs, parts)])


def _check_missing(missing, entries, weights, encoder_weights, report) -> None:
    """A part may be wholly absent if it is made to be trained: the pooler, or a head. All else is an error."""
    lost = []
    for part in {entry.ours.split("/")[0] for entry in missing}:
        absent = [entry for entry in missing if entry.ours.split("/")[0] == part]
        whole = len(absent) == len([entry for entry in entries if entry.ours.split("/")[0] == part])
        optional = part == "pooler" or id(weights[absent[0].ours]) not in encoder_weights
        if whole and optional:
            report.new.append(part)
        else:
            lost += [name for entry in absent for name in entry.theirs]
    report.new.sort()
    if lost:
        raise CheckpointError(
            f"the checkpoint lacks {len(lost)} tensors that this model needs: {', '.join(sorted(lost)[:8])}."
        )


def _note(report: LoadReport, config: EncoderConfig, stored: dict[str, str], used: set[str], family) -> None:
    report.unused = sorted(stored[name] for name in stored if name not in used and not family.is_inert(name))
    old = [name for name in stored.values() if name.endswith(("LayerNorm.gamma", "LayerNorm.beta"))]
    if old:
        report.notes.append(
            f"{len(old)} LayerNorm tensors have their old names, gamma and beta; saved as weight and bias"
        )
    if config.attention_probs_dropout_prob:
        report.notes.append(
            f"attention dropout is off in training (the file's {config.attention_probs_dropout_prob:g} "
            f"is kept when saved); "
            "pass attention_dropout= to use it"
        )
    if config.unknown_keys:
        report.notes.append(f"config.json has keys unknown to bertzoo: {', '.join(config.unknown_keys)}")


def stored_tensors(model: keras.Model, encoder: keras.Model, heads: tuple[str, ...]) -> dict[str, np.ndarray]:
    """All tensors of a model under the file's names, in the dtypes it was loaded with where these hold it exactly."""
    weights, prefix = weight_names(model), encoder.family.prefix if heads else ""
    own = {ours for head in heads for ours, _ in encoder.family.names_of_head(encoder.config, head)}
    tensors, names, codes, scales = {}, {}, {}, scales_of(model)
    for entry in entries_of(model, encoder, heads):
        weight = weights[entry.ours]
        value = keras.ops.convert_to_numpy(weight)
        parts = entry.split(value if id(weight) in scales else value.astype(np.float32, copy=False))
        for name in parts:
            names[name] = name if entry.ours in own or name.startswith("bertzoo.") else prefix + name
        if id(weight) in scales:
            rows = np.split(keras.ops.convert_to_numpy(scales[id(weight)]), len(entry.theirs))
            codes |= {names[name]: part for name, part in parts.items()}
            codes |= {names[name] + SCALE: row for name, row in zip(entry.theirs, rows)}
        else:
            tensors |= parts
    narrow = _narrowed(tensors, getattr(model, "checkpoint_dtypes", {}))
    return {names[name]: tensor for name, tensor in (narrow or tensors).items()} | codes


def _narrowed(tensors, dtypes) -> dict[str, np.ndarray] | None:
    """The tensors in the dtypes of the file, or None where that would lose a bit of any."""
    out = {}
    for name, tensor in tensors.items():
        out[name] = tensor.astype(_NUMPY.get(dtypes.get(name, "F32"), np.float32))
        if not np.array_equal(out[name].astype(np.float32), tensor):
            return None
    return out


def save_model(
    model: keras.Model,
    directory: str | Path,
    *,
    heads: tuple[str, ...] = (),
    hf_class: str = "Model",
    config_changes: dict[str, Any] | None = None,
    tokenizer=None,
    more_files: Mapping[str, Any] | None = None,
) -> None:
    """Writes a model as a Hugging Face checkpoint directory, all of it or nothing.

    Args:
        model: An `Encoder`, or a model with one as `backbone`.
        directory: Where to; made if need be. An older preset there is replaced, other files in it are kept.
        heads: The family's heads that the model has.
        hf_class: What follows the family's name in the name of Hugging Face's class.
        config_changes: Keys of config.json that the task owns.
        tokenizer: Written as tokenizer.json and tokenizer_config.json.
        more_files: What else belongs to the model, as `write_preset` takes it.
    """
    encoder = getattr(model, "backbone", model)
    tensors = stored_tensors(model, encoder, heads)
    content = encoder.config.to_hf()
    content.update(config_changes or {}, architectures=[encoder.family.hf_name + hf_class])
    if not content.get("bertzoo"):
        content.pop("bertzoo", None)
    content.pop("torch_dtype", None)
    kinds = {tensor.dtype.name for tensor in tensors.values()} - {"int8"}
    content["dtype"] = kinds.pop() if len(kinds) == 1 else "float32"
    files = dict(weight_files(tensors))
    files["config.json"] = (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
    if tokenizer is not None:
        files.update(tokenizer.files())
    write_preset(Path(directory), files | dict(more_files or {}))


def check_options(made: type, options: Iterable[str]) -> None:
    """Refuses what the constructor of the class does not take.

    Raises:
        TypeError: An option is unknown.
    """
    taken = [*inspect.signature(made.__init__).parameters][1:]
    known = {"dtype", *taken} - {"kwargs", "config", "backbone"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise TypeError(
            f"{made.__name__}.from_preset has no option {', '.join(unknown)}; it takes {', '.join(sorted(known))}."
        )


def load_encoder(preset, *, verbose: bool = True, pooler: bool = True, **options):
    """See `Encoder.from_preset`."""
    from bertzoo.models.encoder import Encoder

    check_options(Encoder, options)
    return load_model(preset, lambda config, _: Encoder(config, pooler=pooler, **options), verbose=verbose)


def save_encoder(encoder, directory, tokenizer=None) -> None:
    """See `Encoder.save_to_preset`."""
    save_model(encoder, directory, tokenizer=tokenizer)
