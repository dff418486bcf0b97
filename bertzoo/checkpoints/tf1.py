"""Google's TensorFlow 1 checkpoints of BERT, ALBERT and ELECTRA: `*.index` and `*.data-…`, a JSON file, a vocabulary.

Rules turn their names into Hugging Face's, so that no family needs a second table. TensorFlow reads the files, so it
must be installed (the `tensorflow` extra) under every backend.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.tensors import WEIGHT_FILES, StoredTensor, Tensors

HEAD_SIZE = 64  # of all ELECTRAs that Google published, whose directories hold no configuration

_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}
# The state of optimizers, and counters.
_NO_WEIGHT = re.compile(
    r"(^|.*/)(global_step|adam_[mv]|lamb_[mv]|Adam(_\d+)?|AdamWeightDecayOptimizer.*|beta\d_power.*)$"
)
# (pattern, replacement), applied in this order; then the endings.
_RULES = {
    "bert": (
        (r"^bert/", ""),
        (r"/layer_(\d+)/", r"/layer/\1/"),
        (r"^output_(weights|bias)$", r"classifier/output_\1"),
        (r"^cls/squad/", "qa_outputs/"),
    ),
    "albert": (
        (r"^bert/", ""),
        (r"^encoder/transformer/group_(\d+)/inner_group_(\d+)/", r"encoder/albert_layer_groups/\1/albert_layers/\2/"),
        (r"/attention_1/self/", "/attention/"),
        (r"/attention_1/output/", "/attention/"),
        (r"/ffn_1/intermediate/output/dense/", "/ffn_output/"),
        (r"/ffn_1/intermediate/dense/", "/ffn/"),
        (r"(albert_layers/\d+)/LayerNorm/", r"\1/attention/LayerNorm/"),
        (r"(albert_layers/\d+)/LayerNorm_1/", r"\1/full_layer_layer_norm/"),
        (r"^pooler/dense/", "pooler/"),
        (r"^cls/predictions/(transform/)?", "predictions/"),
        (r"^cls/seq_relationship/", "sop_classifier/classifier/"),
        (r"^output_(weights|bias)$", r"classifier/output_\1"),
    ),
    "electra": (
        (r"^electra/", ""),
        (r"/layer_(\d+)/", r"/layer/\1/"),
        (r"^discriminator_predictions/dense_1/", "discriminator_predictions/dense_prediction/"),
        (r"^generator_predictions/output_bias$", "generator_lm_head/bias"),
    ),
}
_ENDINGS = (
    (r"(?<=_embeddings)$", "/weight"),
    (r"/(kernel|gamma|output_weights)$", "/weight"),
    (r"/(beta|output_bias)$", "/bias"),
)


def is_format(directory: Path) -> bool:
    """Whether the directory holds a TensorFlow checkpoint and no Hugging Face one."""
    return bool(_prefixes(directory)) and not any((directory / name).exists() for name in WEIGHT_FILES)


def read(directory: Path, heads: tuple[str, ...] = ()) -> tuple[dict[str, Any], Tensors, list[str]]:
    """The content of a config.json, the tensors under Hugging Face's names, and notes for the load report.

    An ELECTRA checkpoint holds two encoders: the generator is read if `heads` has "masked_lm", else the discriminator.

    Raises:
        CheckpointError: TensorFlow is missing, a file is missing or damaged, or it is none of the three families.
    """
    reader, prefix = _open(directory)
    names = [name for name in reader.get_variable_to_shape_map() if not _NO_WEIGHT.match(name)]
    kind = _kind(names, prefix)
    wanted = _of_one_encoder(names, "masked_lm" in heads) if kind == "electra" else {name: name for name in names}
    entries = {to_hf(short, kind): _entry(reader, name, prefix) for short, name in wanted.items()}
    content, notes = _config(directory, kind, entries)
    return content, Tensors(entries), notes


def to_hf(name: str, kind: str) -> str:
    """Hugging Face's name, without the family's prefix, of a TensorFlow variable."""
    for pattern, replacement in (*_RULES[kind], *_ENDINGS):
        name = re.sub(pattern, replacement, name)
    return name.replace("/", ".")


def _prefixes(directory: Path) -> list[Path]:
    found = (path.with_suffix("") for path in sorted(directory.glob("*.index")))
    return [prefix for prefix in found if any(directory.glob(f"{_escaped(prefix.name)}.data-00000-of-*"))]


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _open(directory: Path):
    prefixes = _prefixes(directory)
    if len(prefixes) > 1:
        named = ", ".join(prefix.name for prefix in prefixes)
        raise CheckpointError(f"{directory} holds several TensorFlow checkpoints ({named}); keep one.")
    try:
        import tensorflow as tf
    except ImportError as error:
        raise CheckpointError(
            f"{directory} holds a TensorFlow checkpoint, which only TensorFlow reads: "
            "pip install tensorflow. Converted once with `bertzoo convert`, it needs no TensorFlow."
        ) from error
    try:
        return tf.train.load_checkpoint(str(prefixes[0])), prefixes[0]
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{prefixes[0]}.index is damaged or no TensorFlow checkpoint: {error}") from error


def _entry(reader: Any, name: str, prefix: Path) -> StoredTensor:
    """A variable as Hugging Face's tensor: kernels are (in, out) in TensorFlow, (out, in) in PyTorch."""
    transposed = name.endswith("/kernel")
    shape = tuple(reader.get_variable_to_shape_map()[name])
    dtype = _DTYPES.get(reader.get_variable_to_dtype_map()[name].name, "other")

    def read() -> np.ndarray:
        try:
            value = reader.get_tensor(name)
        except Exception as error:  # TensorFlow's own error classes differ by what is damaged
            raise CheckpointError(f"{prefix}: {name} cannot be read: {error}") from error
        return value.T if transposed else value

    return StoredTensor(dtype, shape[::-1] if transposed else shape, read)


def _kind(names: Iterable[str], prefix: Path) -> str:
    for start, kind in (
        ("electra/embeddings/", "electra"),
        ("bert/encoder/transformer/group_", "albert"),
        ("bert/encoder/layer_", "bert"),
    ):
        if any(name.startswith(start) for name in names):
            return kind
    raise CheckpointError(f"{prefix} is none of Google's BERT, ALBERT and ELECTRA: it holds {', '.join(names)[:200]}.")


def _of_one_encoder(names: Iterable[str], generator: bool) -> dict[str, str]:
    """The names that the variables would have in a file of one encoder -> their names. The generator shares the
    embeddings unless it has its own."""
    if not generator:
        return {name: name for name in names if not name.startswith("generator")}
    shared = ("electra/embeddings/", "generator_predictions/")
    wanted = {name: name for name in names if name.startswith(shared)}
    wanted.update(
        {f"electra/{name.removeprefix('generator/')}": name for name in names if name.startswith("generator/")}
    )
    return wanted


def _config(directory: Path, kind: str, entries: Mapping[str, StoredTensor]) -> tuple[dict[str, Any], list[str]]:
    paths = [path for path in sorted(directory.glob("*config.json")) if path.name != "tokenizer_config.json"]
    content: dict[str, Any] = {}
    if paths:
        try:
            content = dict(json.loads(paths[0].read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{paths[0]} can't be used: {error}") from error
    elif kind != "electra":
        raise CheckpointError(f"{directory} holds a TensorFlow checkpoint and no {kind}_config.json to describe it.")
    notes = [f"TensorFlow 1 checkpoint of {'BERT' if kind == 'bert' else kind.upper()}"]
    content["model_type"] = kind
    if kind == "electra":
        content.update(_electra_sizes(entries, directory))
        notes.append(f"sizes taken from the tensors, attention heads of {HEAD_SIZE}")
    if kind == "albert" and content.get("hidden_act") == "gelu":
        content["hidden_act"] = "gelu_new"  # what Google's code means by it, and what transformers' files say
    if kind == "bert" and content.get("hidden_act") == "gelu":
        notes.append("GELU is computed exactly, as in transformers; Google's code approximates it (gelu_new)")
    return content, notes


def _electra_sizes(entries: Mapping[str, StoredTensor], directory: Path) -> dict[str, int]:
    try:
        vocabulary, embedding = entries["embeddings.word_embeddings.weight"].shape
        intermediate, hidden = entries["encoder.layer.0.intermediate.dense.weight"].shape
        positions = entries["embeddings.position_embeddings.weight"].shape[0]
        segments = entries["embeddings.token_type_embeddings.weight"].shape[0]
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{directory} lacks a part of ELECTRA, or it has another shape: {error}") from error
    layers = {int(match[1]) for name in entries if (match := re.match(r"encoder\.layer\.(\d+)\.", name))}
    return {
        "vocab_size": vocabulary,
        "embedding_size": embedding,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "max_position_embeddings": positions,
        "type_vocab_size": segments,
        "num_hidden_layers": len(layers),
        "num_attention_heads": max(1, hidden // HEAD_SIZE),
    }
