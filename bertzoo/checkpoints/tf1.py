"""Google's TensorFlow 1 checkpoints of BERT, ALBERT and ELECTRA: `*.index` and `*.data-…`, a JSON file, a vocabulary.

Rules turn their names into Hugging Face's, so that no family needs a second table. TensorFlow reads the files, so it
must be installed (the `tensorflow` extra) under every backend.
"""

import glob
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.json_files import read_json
from bertzoo.checkpoints.tensors import WEIGHT_FILES, LazyTensors, StoredTensor

HEAD_SIZE = 64  # of all ELECTRAs that Google published, whose directories hold no configuration

# How the names of variables begin in each family.
_FAMILIES = {
    "electra/embeddings/": "electra",
    "bert/encoder/transformer/group_": "albert",
    "bert/encoder/layer_": "bert",
}
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
        (r"^(electra|generator)/", ""),
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


def is_checkpoint(directory: Path) -> bool:
    """Whether the directory holds a TensorFlow checkpoint and no Hugging Face one."""
    return bool(_prefixes(directory)) and not any((directory / name).exists() for name in WEIGHT_FILES)


def read_config_and_tensors(
    directory: Path, head_names: tuple[str, ...] = ()
) -> tuple[dict[str, Any], LazyTensors, list[str]]:
    """The content of a config.json, the tensors under Hugging Face's names, and notes for the load report.

    An ELECTRA checkpoint holds two encoders: with "masked_lm" in `head_names` the generator is read, else the
    discriminator.

    Raises:
        CheckpointError: TensorFlow is missing, a file is missing or damaged, or it is none of the three families.
    """
    reader, prefix = _open(directory)
    names = [name for name in reader.get_variable_to_shape_map() if not _NO_WEIGHT.match(name)]
    kinds = [kind for start, kind in _FAMILIES.items() if any(name.startswith(start) for name in names)]
    if not kinds:
        raise CheckpointError(
            f"{prefix} is none of Google's BERT, ALBERT and ELECTRA: it holds {', '.join(names)[:200]}."
        )
    if kinds[0] == "electra" and "masked_lm" in head_names:  # the generator shares the embeddings unless it has its own
        names = [name for name in names if name.startswith(("electra/embeddings/", "generator"))]
        names.sort(key=lambda name: name.startswith("generator/"))
    elif kinds[0] == "electra":
        names = [name for name in names if not name.startswith("generator")]
    entries = {_hf_name(name, kinds[0]): _entry(reader, name, prefix) for name in names}
    content, notes = _config(directory, kinds[0], entries)
    return content, LazyTensors(entries), notes


def _hf_name(name: str, kind: str) -> str:
    """Hugging Face's name, without the family's prefix, of a TensorFlow variable."""
    for pattern, replacement in (*_RULES[kind], *_ENDINGS):
        name = re.sub(pattern, replacement, name)
    return name.replace("/", ".")


def _prefixes(directory: Path) -> list[Path]:
    prefixes = (path.with_suffix("") for path in sorted(directory.glob("*.index")))
    return [prefix for prefix in prefixes if any(directory.glob(f"{glob.escape(prefix.name)}.data-00000-of-*"))]


def _open(directory: Path) -> tuple[Any, Path]:
    prefix, *others = _prefixes(directory)
    if others:
        names = ", ".join(path.name for path in (prefix, *others))
        raise CheckpointError(f"{directory} holds several TensorFlow checkpoints ({names}); keep one.")
    try:
        import tensorflow as tf
    except ImportError as error:
        raise CheckpointError(
            f"{directory} holds a TensorFlow checkpoint, which only TensorFlow reads: "
            "pip install tensorflow. Converted once with `bertzoo convert`, it needs no TensorFlow."
        ) from error
    try:
        return tf.train.load_checkpoint(str(prefix)), prefix
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{prefix}.index is damaged or no TensorFlow checkpoint: {error}") from error


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


def _config(directory: Path, kind: str, entries: Mapping[str, StoredTensor]) -> tuple[dict[str, Any], list[str]]:
    paths = [path for path in sorted(directory.glob("*config.json")) if path.name != "tokenizer_config.json"]
    if not paths and kind != "electra":
        raise CheckpointError(f"{directory} holds a TensorFlow checkpoint and no {kind}_config.json to describe it.")
    content = {**(read_json(paths[0]) if paths else {}), "model_type": kind}
    notes = [f"TensorFlow 1 checkpoint of {'BERT' if kind == 'bert' else kind.upper()}"]
    if kind == "electra":
        try:
            content |= _electra_sizes(entries)
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"{directory} lacks a part of ELECTRA, or it has another shape: {error}") from error
        notes.append(f"sizes taken from the tensors, attention heads of {HEAD_SIZE}")
    if kind == "albert" and content.get("hidden_act") == "gelu":
        content["hidden_act"] = "gelu_new"  # what Google's code means by it, and what transformers' files say
    if kind == "bert" and content.get("hidden_act") == "gelu":
        notes.append("GELU is computed exactly, as in transformers; Google's code approximates it (gelu_new)")
    return content, notes


def _electra_sizes(entries: Mapping[str, StoredTensor]) -> dict[str, int]:
    vocab_size, embedding_size = entries["embeddings.word_embeddings.weight"].shape
    intermediate_size, hidden_size = entries["encoder.layer.0.intermediate.dense.weight"].shape
    return {
        "vocab_size": vocab_size,
        "embedding_size": embedding_size,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "max_position_embeddings": entries["embeddings.position_embeddings.weight"].shape[0],
        "type_vocab_size": entries["embeddings.token_type_embeddings.weight"].shape[0],
        "num_hidden_layers": len({m[1] for name in entries if (m := re.match(r"encoder\.layer\.(\d+)\.", name))}),
        "num_attention_heads": max(1, hidden_size // HEAD_SIZE),
    }
