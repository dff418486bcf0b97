"""Directories of GLiNER: gliner_config.json, which holds the encoder's configuration, and the weights of all parts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.hub import SMALL_FILES, download
from bertzoo.checkpoints.json_files import FLAG, NULL, TEXT, integer_rule, number_rule, read_json
from bertzoo.checkpoints.names import Names, WeightMapping, expand_name_patterns
from bertzoo.checkpoints.tensors import LazyTensors, open_tensors_in_directory

CONFIG_FILE = "gliner_config.json"
_TOKEN_TABLES = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight")
ENCODER = "token_rep_layer.bert_layer.model."  # before the names of the encoder's tensors

_RULES = {
    "class_token_index": integer_rule(-1),
    "dropout": number_rule(0, 1),
    "embed_ent_token": FLAG,
    "ent_token": TEXT,
    "hidden_size": integer_rule(1),
    "max_len": integer_rule(1),
    "max_neg_type_ratio": integer_rule(0),
    "max_types": integer_rule(1),
    "max_width": integer_rule(1),
    "num_rnn_layers": integer_rule(0),
    "sep_token": TEXT,
    "span_mode": TEXT,
    "subtoken_pooling": TEXT,
}
# Keys that change what is computed -> the values that bertzoo computes.
_COMPUTED: dict[str, tuple[Any, ...]] = {
    "fuse_layers": (False,),
    "labels_decoder": (None,),
    "labels_encoder": (None,),
    "post_fusion_schema": ("", None),
    "precomputed_prompts_mode": (None, False),
    "relations_layer": (None,),
    "represent_spans": (False,),
    "span_encoder_config": (None,),
    "span_mode": ("markerV0", "token_level"),
    "subtoken_pooling": ("first", "last"),
    "words_splitter_type": ("whitespace",),
}

_SCORER = "entities/scorer/"


def _perceptron(keras_name: str, hf_name: str) -> Names:
    return tuple(
        (f"{keras_name}/{layer}/{kind}", f"{hf_name}.{number}.{hf_kind}")
        for layer, number in (("first", 0), ("second", 3))
        for kind, hf_kind in (("kernel", "weight"), ("bias", "bias"))
    )


def _own_perceptron(hf_name: str) -> Names:
    """Of a perceptron whose weights are the scorer's own."""
    pairs = _perceptron("", hf_name)
    return tuple((_SCORER + keras_name.strip("/").replace("/", "_"), name) for keras_name, name in pairs)


_PROJECTION: Names = (
    ("entities/projection/kernel", "token_rep_layer.projection.weight"),
    ("entities/projection/bias", "token_rep_layer.projection.bias"),
)
_LSTM: Names = tuple(
    (f"entities/lstm_{{i}}/{direction}_{kind}", f"rnn.lstm.{hf_kind}_l{{i}}{suffix}")
    for direction, suffix in (("forward", ""), ("backward", "_reverse"))
    for kind, hf_kind in (
        ("kernel", "weight_ih"),
        ("recurrent_kernel", "weight_hh"),
        ("bias", "bias_ih"),
        ("recurrent_bias", "bias_hh"),
    )
)
_SPANS: Names = (
    *_perceptron(f"{_SCORER}start", "span_rep_layer.span_rep_layer.project_start"),
    *_perceptron(f"{_SCORER}end", "span_rep_layer.span_rep_layer.project_end"),
    *_own_perceptron("span_rep_layer.span_rep_layer.out_project"),
    *_perceptron(f"{_SCORER}label", "prompt_rep_layer"),
)
_TOKENS: Names = (
    *(
        (f"{_SCORER}{part}/{kind}", f"scorer.proj_{hf_part}.{hf_kind}")
        for part, hf_part in (("word", "token"), ("label", "label"))
        for kind, hf_kind in (("kernel", "weight"), ("bias", "bias"))
    ),
    *_own_perceptron("scorer.out_mlp"),
)


def is_checkpoint(directory: Path) -> bool:
    """Whether the directory holds a GLiNER model."""
    return (directory / CONFIG_FILE).is_file()


def read_config(directory: Path) -> dict[str, Any]:
    """The content of gliner_config.json.

    Raises:
        CheckpointError: It is damaged, or describes what bertzoo does not compute.
    """
    path = directory / CONFIG_FILE
    content = read_json(path, {key: rule | NULL for key, rule in _RULES.items()})
    content = {key: value for key, value in content.items() if value is not None or key not in _RULES}
    for key, values in _COMPUTED.items():
        if content.get(key, values[0]) not in values:
            allowed = " or ".join(map(repr, values))
            raise CheckpointError(f"{path} has {key} = {content[key]!r:.80}; bertzoo computes {allowed}.")
    return content


def base_directory(directory: Path, content: Mapping[str, Any]) -> Path:
    """The directory of the encoder that a model began with, which older files name in place of its configuration and
    tokenizer: a folder, or a repository of the hub, of which the small files are fetched.

    Raises:
        CheckpointError: There is none, or the download fails.
    """
    name = content.get("model_name")
    if not isinstance(name, str) or not name:
        raise CheckpointError(
            f"{directory / CONFIG_FILE} must have an encoder_config or a model_name. Received: neither. Copy the "
            "encoder's config.json into encoder_config."
        )
    return Path(name) if Path(name).is_dir() else download(f"hf://{name}", SMALL_FILES)


def read_config_and_tensors(
    directory: Path, head_names: tuple[str, ...] = ()
) -> tuple[dict[str, Any], LazyTensors, list[str]]:
    """The content of the encoder's config.json, the tensors, the encoder's under Hugging Face's names, and no notes.

    Raises:
        CheckpointError: A file is damaged, or describes what bertzoo does not compute.
    """
    settings = read_config(directory)
    content = settings.get("encoder_config")
    if not isinstance(content, Mapping):
        content = read_json(base_directory(directory, settings) / "config.json")
    content = {"model_type": "deberta-v2", **content}
    tensors = open_tensors_in_directory(directory)
    names = {name.removeprefix(ENCODER): name for name in tensors}
    for name in _TOKEN_TABLES:  # which has grown by the tokens of prompts
        if name in names:
            content["vocab_size"] = tensors.shape(names[name])[0]
    return content, _KeepsFiles(tensors, names), []


class _KeepsFiles(LazyTensors):
    """Tensors under other names, {new: old}, that close the files of those that they are made of."""

    def __init__(self, tensors: LazyTensors, names: Mapping[str, str]):
        super().__init__(tensors.renamed(names)._entries)
        self._source = tensors

    def close(self) -> None:
        self._source.close()


def head_mappings(keras_names: set[str], span_mode: str, num_lstms: int) -> list[WeightMapping]:
    """The tensors of the parts besides the encoder, of those weights that a model has.

    Args:
        keras_names: The names of its weights.
        span_mode: "markerV0" or "token_level".
        num_lstms: Its LSTMs.
    """
    patterns = (*_PROJECTION, *_LSTM, *(_TOKENS if span_mode == "token_level" else _SPANS))
    entries = expand_name_patterns(patterns, {"i": num_lstms})
    return [entry for entry in entries if entry.keras_name in keras_names]


def file_names(tensors: Mapping[str, np.ndarray], of_head: set[str]) -> dict[str, np.ndarray]:
    """Tensors under the names that GLiNER's files have; `of_head` are those not of the encoder."""
    return {name if name in of_head else ENCODER + name: tensor for name, tensor in tensors.items()}
