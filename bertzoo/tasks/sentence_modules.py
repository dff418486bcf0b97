"""Between a sentence-transformers directory and what is made of it: the layers after the encoder, and options."""

from collections.abc import Container, Sequence
from typing import Any

import keras
import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.sentence_transformers import ACTIVATIONS, OLD_POOLINGS, Module, SentenceFiles
from bertzoo.layers.pooling import Normalize, Pooling
from bertzoo.models.config import EncoderConfig
from bertzoo.tasks.presets import load_tokenizer
from bertzoo.tasks.prompts import prompt_options
from bertzoo.text.tokenizer import Tokenizer


def options_from(files: SentenceFiles) -> dict[str, Any]:
    """What `SentenceEncoder` takes of the files, its layers without their weights."""
    options = prompt_options(files.settings)
    if files.modules:
        pooling, *after_pooling = layers_from(files.modules)
        options |= {"pooling": pooling, "after_pooling": after_pooling}
    return options


def tokenizer_from(
    files: SentenceFiles, config: EncoderConfig, max_length: int | None, lowercase: bool | None
) -> Tokenizer:
    """The tokenizer of the files, with their longest input where `max_length` is None.

    Raises:
        CheckpointError: The texts are to be lowercased before a tokenizer that would not do so.
    """
    if max_length is None and files.max_length is not None:
        max_length = min(files.max_length, config.max_length)
    tokenizer = load_tokenizer(files.directory, config, max_length, lowercase)
    if files.lowercase and lowercase is None and not tokenizer.lowercase:
        raise CheckpointError(
            f"{files.directory} asks for lowercased texts (do_lower_case) before a tokenizer that keeps capitals; "
            "pass lowercase=True or lowercase=False to choose."
        )
    return tokenizer


def layers_from(modules: Sequence[Module]) -> list[keras.layers.Layer]:
    """The pooling layer and those after it, without their weights.

    Raises:
        CheckpointError: The first part is no pooling, or a later one is.
    """
    kinds = [module.kind for module in modules]
    if kinds[0] != "Pooling" or kinds.count("Pooling") > 1:
        raise CheckpointError(f"modules.json lists {', '.join(kinds)} after the encoder; one Pooling must come first.")
    return [_layer(module, number) for number, module in enumerate(modules, start=1)]


def _layer(module: Module, number: int) -> keras.layers.Layer:
    settings = module.settings
    if module.kind == "Pooling":
        return Pooling(**settings)
    if module.kind == "Normalize":
        return Normalize(name=f"normalize_{number}", dtype="float32")
    return keras.layers.Dense(
        settings["units"],
        activation=settings["activation"],
        use_bias=settings["bias"],
        name=f"dense_{number}",
        dtype="float32",
    )


def fill_layers(
    modules: Sequence[Module], pooling: Pooling, after_pooling: Sequence[keras.layers.Layer], replaced: Container[str]
) -> None:
    """Puts the weights of the files into the layers that `layers_from` made of them, but those of `replaced` options.

    Raises:
        CheckpointError: A tensor is missing or misshapen.
    """
    pairs = [] if "pooling" in replaced else [*zip(modules[:1], [pooling])]
    pairs += [] if "after_pooling" in replaced else zip(modules[1:], after_pooling)
    for module, layer in pairs:
        for weight, name in _weights(layer):
            if name not in module.tensors:
                raise CheckpointError(f"{module.source}: its weights lack the tensor {name}.")
            value = module.tensors[name].T
            if value.shape != tuple(weight.shape):
                raise CheckpointError(
                    f"{module.source}: tensor {name} has shape {module.tensors[name].shape}; "
                    f"{tuple(weight.shape)[::-1]} is expected."
                )
            weight.assign(value)


def _weights(layer: keras.layers.Layer) -> list[tuple[keras.Variable, str]]:
    """The weights of a layer with the file's names; matrices are transposed there."""
    if isinstance(layer, keras.layers.Dense):
        return [(layer.kernel, "linear.weight")] + ([(layer.bias, "linear.bias")] if layer.use_bias else [])
    return [(weight, f"bertzoo.{weight.name}") for weight in layer.weights]


def modules_of(pooling: Pooling, after_pooling: Sequence[keras.layers.Layer]) -> list[Module]:
    """What `sentence_files` writes of the layers.

    Raises:
        CheckpointError: A Dense layer has an activation for which sentence-transformers' files have no name.
    """
    return [_module(layer) for layer in (pooling, *after_pooling)]


def _module(layer: keras.layers.Layer) -> Module:
    if getattr(layer, "quantization_mode", None):
        raise CheckpointError(
            f"a preset has no form for the quantized {layer.name} after the pooling: quantize model.backbone alone."
        )
    tensors = {
        name: np.ascontiguousarray(keras.ops.convert_to_numpy(weight).T).astype("float32")
        for weight, name in _weights(layer)
    }
    if isinstance(layer, Pooling):
        return Module("Pooling", _pooling_settings(layer), tensors)
    if isinstance(layer, Normalize):
        return Module("Normalize")
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    activation = keras.activations.serialize(layer.activation)
    if activation not in names:
        raise CheckpointError(f"sentence-transformers has no name for a Dense with the activation {activation!r}.")
    settings = {"in_features": int(layer.kernel.shape[0]), "out_features": layer.units, "bias": layer.use_bias}
    return Module("Dense", {**settings, "activation_function": names[activation]}, tensors)


def _pooling_settings(layer: Pooling) -> dict[str, Any]:
    settings = {"word_embedding_dimension": layer.hidden_size, "include_prompt": layer.include_prompt}
    in_old_order = [mode for mode in OLD_POOLINGS.values() if mode in layer.modes]
    if in_old_order == list(layer.modes):  # which every version of sentence-transformers reads
        return {**settings, **{key: mode in layer.modes for key, mode in OLD_POOLINGS.items()}}
    return {**settings, "pooling_mode": list(layer.modes)}
