"""Models from KerasHub (formerly KerasNLP), and encoders to it: the `keras-hub` extra.

Both libraries compute the same formulas in Keras layers, so one table of weights serves all families and both
directions. KerasHub differs in this: query, key and value are separate, the activation and the epsilon of each family
are fixed, and RoBERTa has neither a row of segments nor unused position rows.
"""

import inspect
import operator
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import print_message
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.files import expand_user
from bertzoo.checkpoints.json_files import read_json
from bertzoo.checkpoints.loading import LoadReport, quantized_layers, weights_by_name
from bertzoo.layers.base import skip_random_initialization
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.models.registry import FAMILIES
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.tasks.text_classifier import TextClassifier
from bertzoo.text.tokenizer import Tokenizer

# KerasHub's class -> the family, and the activation that the class has built in.
CLASSES = {
    "BertBackbone": ("bert", "gelu_new"),
    "RobertaBackbone": ("roberta", "gelu"),
    "XLMRobertaBackbone": ("xlm-roberta", "gelu"),
    "AlbertBackbone": ("albert", "gelu_new"),
    "DistilBertBackbone": ("distilbert", "gelu"),
    "ElectraBackbone": ("electra", "gelu_new"),
}
_ARGUMENTS = {
    "vocabulary_size": "vocab_size",
    "vocab_size": "vocab_size",  # ELECTRA's
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "embedding_dim": "embedding_size",
    "intermediate_dim": "intermediate_size",
    "num_groups": "num_hidden_groups",
    "num_inner_repetitions": "inner_group_num",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_SAME = {"gelu": ("gelu", "gelu_python"), "gelu_new": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")}
# Weights, or layers of two weights each, and where KerasHub's backbones, tasks and blocks have them.
_BACKBONE = (
    ("embeddings/token", "token_embedding.embeddings"),
    ("embeddings/position", "position_embedding.position_embeddings"),
    ("embeddings/position", "embeddings.position_embedding.position_embeddings"),
    ("embeddings/segment", "segment_embedding.embeddings"),
    ("embeddings/norm", "embeddings_layer_norm"),
    ("embeddings/projection", "embeddings_projection"),
    ("pooler/dense", "pooled_dense"),
)
_HEADS = (
    ("masked_lm/dense", "masked_lm_head._intermediate_dense"),
    ("masked_lm/norm", "masked_lm_head._intermediate_layer_norm"),
    ("masked_lm/bias", "masked_lm_head._bias"),
    ("classifier/dense", "pooled_dense"),
    ("classifier/logits", "output_dense"),
)
_BLOCK = (
    ("attention/output", "_self_attention_layer._output_dense"),
    ("attention_norm", "_self_attention_layer_norm"),
    ("intermediate", "_feedforward_intermediate_dense"),
    ("output", "_feedforward_output_dense"),
    ("output_norm", "_feedforward_layer_norm"),
)
# KerasHub has no rows for the positions of padding, which RoBERTa's table begins with.
_UNUSED_ROWS = 2


def from_keras_hub(source: keras.Model | str | Path, *, verbose: bool = True) -> keras.Model:
    """Converts a KerasHub model.

    Args:
        source: A backbone, text classifier or masked LM of KerasHub, the directory of a backbone's preset, or a name
            that `keras_hub.models.Backbone.from_preset` knows and downloads.
        verbose: Print what was loaded. It stays as `load_report` in any case.

    Returns:
        An `Encoder`; for a text classifier a `TextClassifier`, for a masked LM a `MaskedLM`. A WordPiece tokenizer is
        converted too; with any other the task has none.

    Raises:
        CheckpointError: KerasHub is missing, or the model is of a class or shape that bertzoo does not have.
    """
    hub_model = _open(source) if isinstance(source, (str, Path)) else source
    backbone = getattr(hub_model, "backbone", hub_model)
    config = _config(backbone)
    report = LoadReport(f"KerasHub's {type(hub_model).__name__}")
    # All weights are filled afterwards, or start at zero as RoBERTa's row of segments does.
    with skip_random_initialization(lambda path: True):
        model = Encoder(config, pooler=hasattr(backbone, "pooled_dense"))
        if backbone is not hub_model:
            model = _task(hub_model, model, report)
    if quantized := quantized_layers(hub_model):
        raise CheckpointError(
            f"{quantized[0].path} is quantized ({quantized[0].quantization_mode}). Convert the model before it is "
            "quantized, and quantize the result."
        )
    weights = weights_by_name(model)
    for name, variables in _pairs(hub_model):
        if name in weights:
            weights[name].assign(_joined(name, variables, weights[name].shape))
            report.loaded += len(variables)
    if hasattr(backbone, "pooled_dense") and "pooler/dense/kernel" not in weights:
        report.unused.append("pooled_dense")
    if isinstance(source, (str, Path)) and (expand_user(source) / "task.json").is_file():
        report.notes.append(
            "the preset is that of a task, whose head was not read: load the task with KerasHub and pass it instead"
        )
    model.load_report = report
    if verbose:
        print_message(str(report))
    return model


def to_keras_hub(encoder: Encoder, *, any_activation: bool = False) -> keras.Model:
    """Converts an encoder to a KerasHub backbone with the same outputs.

    Args:
        encoder: An encoder of a family that KerasHub has; CamemBERT becomes an XLM-R backbone.
        any_activation: Allow an activation other than the one that KerasHub's class has built in; BERT's outputs then
            differ in the third or fourth decimal (tanh and exact GELU).

    Warns where the backbone has a pooler and the encoder has none: it stays untrained.

    Raises:
        CheckpointError: KerasHub is missing.
        ValueError: KerasHub has no class for the family, or the class can't compute this encoder.
    """
    class_name = _class_for(encoder.config, any_activation)
    config = encoder.config
    if _lacks_rows(class_name):
        config = config.replace(max_position_embeddings=config.max_position_embeddings - _UNUSED_ROWS)
    backbone_class = getattr(_keras_hub().models, class_name)
    taken = inspect.signature(backbone_class.__init__).parameters
    arguments = {argument: getattr(config, key) for argument, key in _ARGUMENTS.items() if argument in taken}
    backbone = backbone_class(**arguments)
    weights = {name: keras.ops.convert_to_numpy(weight) for name, weight in weights_by_name(encoder).items()}
    if _lacks_rows(class_name):  # the one row of segments is added to every token
        weights["embeddings/position"] = (weights["embeddings/position"] + weights["embeddings/segment"])[_UNUSED_ROWS:]
    for name, variables in _pairs(backbone):
        if name in weights:
            for variable, value in zip(variables, np.split(weights[name], len(variables), axis=-1)):
                variable.assign(value.reshape(variable.shape))
    if hasattr(backbone, "pooled_dense") and encoder.pooler is None:
        warnings.warn(f"the encoder has no pooler: pooled_dense of the {class_name} is untrained.", stacklevel=2)
    return backbone


def _keras_hub():
    try:
        import keras_hub
    except ImportError as error:
        raise CheckpointError("this needs KerasHub: pip install keras-hub tensorflow-text.") from error
    return keras_hub


def _open(source: str | Path):
    """A backbone. Only the class's name, numbers and arrays are read from a directory, so nothing in it runs."""
    directory = expand_user(source)
    if not directory.is_dir():
        return _keras_hub().models.Backbone.from_preset(str(source))
    content = read_json(directory / "config.json")
    class_name, arguments = content.get("class_name"), content.get("config")
    if class_name not in CLASSES or not isinstance(arguments, dict):
        raise CheckpointError(
            f"{directory} is no preset of a KerasHub backbone that bertzoo has: class_name is {class_name!r}; "
            f"known are {', '.join(CLASSES)}."
        )
    numbers = {key: value for key, value in arguments.items() if key in _ARGUMENTS}
    try:
        backbone = getattr(_keras_hub().models, class_name)(**numbers)
        backbone.load_weights(str(directory / "model.weights.h5"))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{directory} can't be read as a {class_name}: {error}") from error
    return backbone


def _config(backbone) -> EncoderConfig:
    names = [base.__name__ for base in type(backbone).__mro__ if base.__name__ in CLASSES]
    if not names:
        raise CheckpointError(
            f"bertzoo has no family for a {type(backbone).__name__}; known of KerasHub are {', '.join(CLASSES)}."
        )
    model_type, activation = CLASSES[names[0]]
    arguments = backbone.get_config()
    values = {key: arguments[argument] for argument, key in _ARGUMENTS.items() if argument in arguments}
    values["max_position_embeddings"] += _UNUSED_ROWS if _lacks_rows(names[0]) else 0
    return FAMILIES[model_type].config_class(**values, hidden_act=activation)


def _class_for(config: EncoderConfig, any_activation: bool) -> str:
    model_type = "xlm-roberta" if config.model_type == "camembert" else config.model_type
    classes = {family: (name, activation) for name, (family, activation) in CLASSES.items()}
    if model_type not in classes:
        raise ValueError(f"KerasHub has no {config.model_type}; it has {', '.join(classes)}.")
    class_name, activation = classes[model_type]
    built_in: dict[str, tuple] = {"layer_norm_eps": (type(config)().layer_norm_eps,)}
    if not any_activation:
        built_in["hidden_act"] = _SAME[activation]
    if _lacks_rows(class_name):
        built_in["type_vocab_size"] = (1,)
    for key, values in built_in.items():
        if getattr(config, key) not in values:
            hint = " Pass any_activation=True to accept outputs that differ." * (key == "hidden_act")
            raise ValueError(
                f"{key} is {getattr(config, key)!r}; KerasHub's {class_name} has {values[0]!r} built in.{hint}"
            )
    return class_name


def _lacks_rows(class_name: str) -> bool:
    """Whether a class has neither segments nor rows for the positions of padding."""
    return class_name.startswith(("Roberta", "XLM"))


def _task(hub_model: keras.Model, encoder: Encoder, report: LoadReport) -> keras.Model:
    tokenizer = _tokenizer(hub_model, encoder.config)
    if hasattr(hub_model, "masked_lm_head"):
        head = hub_model.masked_lm_head
        model = MaskedLM(encoder, tokenizer)
        activation = getattr(head.intermediate_activation, "__name__", "")
        if (activation == "gelu") != (model.masked_lm.activation == "gelu"):
            report.notes.append(f"KerasHub's head computes {activation}, bertzoo's {model.masked_lm.activation}")
        if head.layer_norm_epsilon != encoder.config.layer_norm_eps:
            report.notes.append(
                f"KerasHub's head normalises with epsilon {head.layer_norm_epsilon:g}, bertzoo's with "
                f"{encoder.config.layer_norm_eps:g}"
            )
        return model
    if hasattr(hub_model, "num_classes") and hasattr(hub_model, "output_dense"):
        if getattr(hub_model.activation, "__name__", "linear") != "linear":
            activation = hub_model.activation.__name__
            report.notes.append(f"KerasHub's classifier ends with {activation}, bertzoo's gives logits")
        return TextClassifier(encoder, tokenizer, labels=hub_model.num_classes)
    raise CheckpointError(
        f"bertzoo reads backbones, text classifiers and masked LMs, not a {type(hub_model).__name__}."
    )


def _tokenizer(hub_model: keras.Model, config: EncoderConfig) -> Tokenizer | None:
    tokenizer: Any = getattr(getattr(hub_model, "preprocessor", None), "tokenizer", None)
    if not hasattr(tokenizer, "lowercase") or not hasattr(tokenizer, "get_vocabulary"):
        return None
    strip = bool(getattr(tokenizer, "strip_accents", False))
    converted = Tokenizer.from_vocabulary(tokenizer.get_vocabulary(), tokenizer.lowercase, strip_accents=strip)
    length = min(config.max_length, getattr(hub_model.preprocessor, "sequence_length", None) or config.max_length)
    converted.max_length, converted.segments = length, config.type_vocab_size > 1
    return converted


def _pairs(hub_model: keras.Model) -> Iterator[tuple[str, list]]:
    """The names of weights with KerasHub's variables, several where the weight is fused of them."""
    backbone = getattr(hub_model, "backbone", hub_model)
    yield from _weights_at(backbone, _BACKBONE)
    yield from _weights_at(hub_model, _HEADS)
    for i, block in enumerate(backbone.transformer_layers):
        is_group = isinstance(block, list)  # ALBERT's
        blocks = {f"group_{i}_layer_{j}": inner for j, inner in enumerate(block)} if is_group else {f"layer_{i}": block}
        for name, layer in blocks.items():
            yield from ((f"{name}/{weight}", variables) for weight, variables in _weights_at(layer, _BLOCK))
            attention = layer._self_attention_layer
            projections = (attention._query_dense, attention._key_dense, attention._value_dense)
            yield f"{name}/attention/qkv/kernel", [projection.kernel for projection in projections]
            yield f"{name}/attention/qkv/bias", [projection.bias for projection in projections]


def _weights_at(owner: keras.layers.Layer, paths: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list]]:
    for name, path in paths:
        try:
            value = operator.attrgetter(path)(owner)
        except AttributeError:  # not every class has every part
            continue
        if isinstance(value, keras.layers.Layer):
            attributes = ("kernel", "bias") if hasattr(value, "kernel") else ("gamma", "beta")
            yield from ((f"{name}/{attribute}", [getattr(value, attribute)]) for attribute in attributes)
        else:
            yield name, [value]


def _joined(name: str, variables: list, shape: tuple[int, ...]) -> np.ndarray:
    """The weight made of KerasHub's variables, which have the heads on an axis of their own."""
    width = (*shape[:-1], shape[-1] // len(variables))
    arrays = [keras.ops.convert_to_numpy(variable).astype("float32") for variable in variables]
    if name == "embeddings/position" and len(arrays[0]) == shape[0] - _UNUSED_ROWS:
        arrays[0] = np.pad(arrays[0], ((_UNUSED_ROWS, 0), (0, 0)))
    if any(array.size != np.prod(width) for array in arrays):
        raise CheckpointError(f"{name} must have shape {width}. Received: {arrays[0].shape} from KerasHub.")
    return np.concatenate([array.reshape(width) for array in arrays], axis=-1)
