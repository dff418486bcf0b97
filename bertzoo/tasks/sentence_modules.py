"""What a directory of sentence-transformers holds besides the encoder, as a task has it: prompts, the measure of
similarity, and the layers after the encoder."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.sentence_transformers import (
    ACTIVATIONS,
    OLD_POOLINGS,
    SentenceModule,
    SentenceTransformerFiles,
    document_prompt_name,
)
from bertzoo.checkpoints.tensors import open_tensors_in_directory
from bertzoo.layers.heads import Normalize, Pooling
from bertzoo.metrics.vector_similarity import pairwise_similarity, similarity
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.presets import load_tokenizer
from bertzoo.text.tokenizer import Tokenizer

# ---- prompts: the words that a model expects before a text, chosen by name or by what the text is for


class PromptedTask:
    """Mixed into tasks that have prompts: the constructor's arguments, and their files' form."""

    prompts: dict[str, str]
    default_prompt: str | None
    settings: dict[str, Any]

    def set_prompts(
        self, prompts: Mapping[str, str] | None, default_prompt: str | None, settings: Mapping[str, Any] | None
    ) -> None:
        """Keeps prompts and the further keys of config_sentence_transformers.json.

        Raises:
            ValueError: `default_prompt` is not among the prompts.
        """
        self.prompts, self.default_prompt, self.settings = dict(prompts or {}), default_prompt, dict(settings or {})
        self.resolve_prompt()

    def resolve_prompt(self, prompt: str | None = None, prompt_name: str | None = None, prompt_type: Any = None) -> str:
        """The text to put before texts: `prompt`, else the prompt of the name, else that of the type, "query" or
        another, else the default prompt, else nothing.

        Raises:
            ValueError: No prompt has the name.
        """
        if prompt is not None:
            return prompt
        if prompt_name is None and prompt_type is not None:
            kind = (
                "query" if getattr(prompt_type, "value", prompt_type) == "query" else document_prompt_name(self.prompts)
            )
            prompt_name = kind if kind in self.prompts else None
        prompt_name = self.default_prompt if prompt_name is None else prompt_name
        if prompt_name is None:
            return ""
        if prompt_name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise ValueError(
                f"the name of a prompt must be one of the model's prompts: {known}. Received: {prompt_name!r}. Or pass "
                "prompt=, the text."
            )
        return self.prompts[prompt_name]

    def prompt_settings(self) -> dict[str, Any]:
        """The keys of config_sentence_transformers.json, as `prompt_options_from_settings` reads them."""
        return {**self.settings, "prompts": self.prompts, "default_prompt_name": self.default_prompt}


def prompt_options_from_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor options from the keys of config_sentence_transformers.json."""
    settings = dict(settings)
    prompts = {name: text or "" for name, text in (settings.pop("prompts", None) or {}).items()}
    default = settings.pop("default_prompt_name", None)
    return {"prompts": prompts, "default_prompt": default, "settings": settings}


# ---- the similarity of vectors


class VectorSimilarity:
    """Mixed into tasks that make vectors: their similarity, by the measure that the model's settings name.

    Attributes:
        default_measure: The measure where the settings name none.
        similarity_function, pairwise_function: (vectors, others, measure) -> the similarities of each with each, and of
            those at the same index.
    """

    settings: dict[str, Any]
    default_measure: ClassVar[str] = "cosine"
    similarity_function: ClassVar[Callable[..., np.ndarray]] = staticmethod(similarity)
    pairwise_function: ClassVar[Callable[..., np.ndarray]] = staticmethod(pairwise_similarity)

    @property
    def similarity_fn_name(self) -> str:
        """The model's similarity measure: one of `bertzoo.metrics.vector_similarity.MEASURES`, or of
        `bertzoo.metrics.maxsim.MEASURES` for token vectors."""
        return self.settings.get("similarity_fn_name") or self.default_measure

    def similarity(self, vectors: Any, others: Any) -> np.ndarray:
        """The similarity of each vector to each of the others, by the model's own measure.

        Args:
            vectors, others: n and m of them, as `encode` gives them.

        Returns:
            float32 (n, m).
        """
        return self.similarity_function(vectors, others, self.similarity_fn_name)

    def similarity_pairwise(self, vectors: Any, others: Any) -> np.ndarray:
        """The similarity of each vector to the one at the same index of the others, by the model's own measure.

        Args:
            vectors, others: n each, as `encode` gives them.

        Returns:
            float32 (n,).
        """
        return self.pairwise_function(vectors, others, self.similarity_fn_name)


# ---- the encoder and the tokenizer


def load_sentence_backbone(directory: Path, **options: Any) -> Encoder:
    """The encoder of a directory, with a pooler where the files have one.

    Args:
        directory: The directory.
        options: Those of `Encoder`.
    """
    with open_tensors_in_directory(directory) as tensors:
        pooler = any("pooler." in name for name in tensors)
    return Encoder.from_preset(directory, pooler=pooler, verbose=False, **options)


def load_sentence_tokenizer(
    files: SentenceTransformerFiles, config: EncoderConfig, max_length: int | None, lowercase: bool | None
) -> Tokenizer:
    """The tokenizer of the files, with their longest input where `max_length` is None.

    Raises:
        CheckpointError: The texts are to be lowercased before a tokenizer that would not do so.
    """
    tokenizer = load_tokenizer(files.directory, config, max_length, lowercase)
    if max_length is None and files.max_length is not None:
        tokenizer.max_length = min(files.max_length, config.max_length)
    if files.lowercase and lowercase is None and not tokenizer.lowercases:
        raise CheckpointError(
            f"{files.directory} asks for lowercased texts (do_lower_case) before a tokenizer that keeps capitals; "
            "pass lowercase=True or lowercase=False to choose."
        )
    return tokenizer


# ---- the layers after the encoder


def layers_from_modules(modules: Sequence[SentenceModule]) -> list[keras.layers.Layer]:
    """The pooling layer and those after it, without their weights.

    Raises:
        CheckpointError: The first module is no pooling, or a later one is.
    """
    kinds = [module.kind for module in modules]
    if kinds[0] != "Pooling" or not {"Dense", "Normalize"}.issuperset(kinds[1:]):
        raise CheckpointError(
            f"modules.json lists {', '.join(kinds)} after the encoder; one Pooling must come first, then Dense and "
            "Normalize may follow."
        )
    return [Pooling(**modules[0].settings), *dense_layers(modules[1:], first_number=2)]


def dense_layers(modules: Sequence[SentenceModule], first_number: int) -> list[keras.layers.Layer]:
    """Dense and Normalize layers, without their weights.

    Args:
        modules: Modules of these kinds.
        first_number: That of the first, in the names of layers.
    """
    layers: list[keras.layers.Layer] = []
    for number, module in enumerate(modules, start=first_number):
        if module.kind == "Normalize":
            layers.append(Normalize(name=f"normalize_{number}", dtype="float32"))
        else:
            units, activation, bias = (module.settings[key] for key in ("units", "activation", "bias"))
            options = {"activation": activation, "use_bias": bias, "name": f"dense_{number}", "dtype": "float32"}
            layers.append(keras.layers.Dense(units, **options))
    return layers


def load_layer_weights(modules: Sequence[SentenceModule], layers: Sequence[keras.layers.Layer]) -> None:
    """Puts the weights of the files into the layers that `layers_from_modules` made of them, those that are in use.

    Raises:
        CheckpointError: A tensor is missing or misshapen.
    """
    for module, layer in zip(modules, layers):
        for weight, name in _weights(layer) if layer.built else ():
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


def module_from_layer(layer: keras.layers.Layer, level: str = "sentence_embedding") -> SentenceModule:
    """What `build_sentence_transformer_files` writes of a layer.

    Args:
        layer: The layer.
        level: What a Dense or Normalize reads and gives, "sentence_embedding" or "token_embeddings".

    Raises:
        CheckpointError: A Dense layer is quantized, or has an activation for which sentence-transformers' files have no
            name.
    """
    if getattr(layer, "quantization_mode", None):
        raise CheckpointError(
            f"a preset has no form for the quantized {layer.name} after the pooling: quantize model.backbone alone."
        )
    # The default of all versions is the sentence's.
    names = {} if level == "sentence_embedding" else dict.fromkeys(("module_input_name", "module_output_name"), level)
    tensors = {
        name: np.ascontiguousarray(keras.ops.convert_to_numpy(weight).T).astype("float32")
        for weight, name in _weights(layer)
    }
    if isinstance(layer, Normalize):
        return SentenceModule("Normalize", names)
    if isinstance(layer, Pooling):
        settings = {"word_embedding_dimension": layer.hidden_size, "include_prompt": layer.include_prompt}
        if [mode for mode in OLD_POOLINGS.values() if mode in layer.modes] == list(layer.modes):
            # In this order, every version of sentence-transformers can read them.
            settings |= {key: mode in layer.modes for key, mode in OLD_POOLINGS.items()}
        else:
            settings["pooling_mode"] = list(layer.modes)
        return SentenceModule("Pooling", settings, tensors)
    hf_names = {keras_name: hf_name for hf_name, keras_name in ACTIVATIONS.items()}
    activation = keras.activations.serialize(layer.activation)
    if activation not in hf_names:
        raise CheckpointError(f"sentence-transformers has no name for a Dense with the activation {activation!r}.")
    settings = {"in_features": int(layer.kernel.shape[0]), "out_features": layer.units, "bias": layer.use_bias}
    return SentenceModule("Dense", {**settings, "activation_function": hf_names[activation], **names}, tensors)
