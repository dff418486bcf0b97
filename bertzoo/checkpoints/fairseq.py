"""fairseq's RoBERTa (also XLM-R and CamemBERT) as it was published: `model.pt`, beside `dict.txt` and the BPE files.

The file is a pickle of {"args": Namespace, "model": {name: tensor}}, read as data. The tokenizer reads `dict.txt` and
the BPE files (`bertzoo.text`).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.tensors import StoredTensor, Tensors
from bertzoo.checkpoints.torch_pickle import LazyTensor, read_torch_file

FILE = "model.pt"
PAD_ID = 1

# fairseq's name within a model -> Hugging Face's. `#` stands for a layer's number.
NAMES = {
    "embed_tokens.": "embeddings.word_embeddings.",
    "embed_positions.": "embeddings.position_embeddings.",
    "emb_layer_norm.": "embeddings.LayerNorm.",
    "layernorm_embedding.": "embeddings.LayerNorm.",
    "layers.#.self_attn.q_proj.": "encoder.layer.#.attention.self.query.",
    "layers.#.self_attn.k_proj.": "encoder.layer.#.attention.self.key.",
    "layers.#.self_attn.v_proj.": "encoder.layer.#.attention.self.value.",
    "layers.#.self_attn.in_proj_": "encoder.layer.#.attention.self.{query,key,value}.",
    "layers.#.self_attn.out_proj.": "encoder.layer.#.attention.output.dense.",
    "layers.#.self_attn_layer_norm.": "encoder.layer.#.attention.output.LayerNorm.",
    "layers.#.fc1.": "encoder.layer.#.intermediate.dense.",
    "layers.#.fc2.": "encoder.layer.#.output.dense.",
    "layers.#.final_layer_norm.": "encoder.layer.#.output.LayerNorm.",
}
_ENCODER = re.compile(r"(?:encoder|decoder)\.sentence_encoder\.(?:layers\.(\d{1,4})\.)?(.+)")
_HEAD = re.compile(r"(?:(?:encoder|decoder)\.)?(lm_head|classification_heads\.[^.]+)\.(.+)")
_NO_WEIGHTS = ("version", "_float_tensor")


def is_format(directory: Path) -> bool:
    """Whether the directory holds a fairseq checkpoint and no Hugging Face one."""
    return (directory / FILE).is_file() and not (directory / "config.json").exists()


def read(directory: Path, heads: tuple[str, ...] = ()) -> tuple[dict[str, Any], Tensors, list[str]]:
    """The content of a config.json, the tensors under Hugging Face's names, and notes for the load report.

    Raises:
        CheckpointError: The file is damaged, or is no RoBERTa.
    """
    path = directory / FILE
    arguments, state = _parts(read_torch_file(path), path)
    entries: dict[str, Any] = {}
    classifiers = {match[1] for name in state if (match := _HEAD.fullmatch(name)) and match[1] != "lm_head"}
    for name, tensor in state.items():
        if name.rsplit(".", 1)[-1] not in _NO_WEIGHTS:
            entries.update(_renamed(name, tensor, len(classifiers) == 1, path))
    content = _config(arguments, entries, path)
    # RoBERTa has no segments; Hugging Face's form of it has a table of one row.
    row = np.zeros((1, content["hidden_size"]), "float32")
    entries["embeddings.token_type_embeddings.weight"] = StoredTensor("F32", row.shape, lambda: row)
    if (directory / "sentencepiece.bpe.model").is_file():
        content["model_type"] = "xlm-roberta"
    if len(classifiers) == 1:
        _describe_classifier(content, entries)
    notes = [f"fairseq's format: the file has {len(classifiers)} classifiers; none was read"] * (len(classifiers) > 1)
    return content, Tensors(entries), notes


def _parts(structure: object, path: Path) -> tuple[Mapping[str, Any], Mapping[str, LazyTensor]]:
    """The settings and the tensors; the settings lie under "args", or in newer files under "cfg", "model"."""
    if isinstance(structure, dict):
        settings = structure.get("args")
        if settings is None and isinstance(structure.get("cfg"), dict):
            settings = structure["cfg"].get("model")
        state = structure.get("model")
        if isinstance(settings, dict) and isinstance(state, dict):
            tensors = {name: value for name, value in state.items() if isinstance(value, LazyTensor)}
            if tensors and all(isinstance(name, str) for name in tensors):
                return settings, tensors
    raise CheckpointError(f"{path} is no fairseq checkpoint: args (or cfg) and model are expected in it.")


def _renamed(name: str, tensor: LazyTensor, one_classifier: bool, path: Path) -> dict[str, Any]:
    """{Hugging Face's name: tensor}: one entry, or three for a fused projection."""
    if head := _HEAD.fullmatch(name):
        part, rest = head.groups()
        if part != "lm_head":
            return {f"classifier.{rest}": tensor} if one_classifier else {}
        return {f"lm_head.{'decoder.weight' if rest == 'weight' else rest}": tensor}
    if match := _ENCODER.fullmatch(name):
        number, rest = match.groups()
        rest = rest if number is None else f"layers.#.{rest}"
        for fairseq_name, hf_name in NAMES.items():
            if rest.startswith(fairseq_name):
                full = (hf_name + rest.removeprefix(fairseq_name)).replace("#", number or "")
                return _thirds(full, tensor) if "{" in full else {full: tensor}
    raise CheckpointError(f"{path} holds {name[:100]}, which no RoBERTa has: bertzoo does not compute this model.")


def _thirds(name: str, tensor: LazyTensor) -> dict[str, StoredTensor]:
    start, parts, end = re.split(r"[{}]", name)
    size = tensor.shape[0] // 3

    def rows(i: int) -> StoredTensor:
        return StoredTensor(tensor.dtype, (size, *tensor.shape[1:]), lambda: tensor.read()[i * size : (i + 1) * size])

    return {f"{start}{part}{end}": rows(i) for i, part in enumerate(parts.split(","))}


def _config(arguments: Mapping[str, Any], entries: Mapping[str, Any], path: Path) -> dict[str, Any]:
    words, positions = (entries.get(f"embeddings.{table}_embeddings.weight") for table in ("word", "position"))
    sizes = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads")
    lacking = [name for name in sizes if not isinstance(arguments.get(name), int)]
    if lacking or words is None or positions is None:
        raise CheckpointError(f"{path} is no RoBERTa: it lacks {', '.join(lacking) or 'its embeddings'}.")
    activation = arguments.get("activation_fn", "gelu")
    if activation != "gelu":
        raise CheckpointError(f"{path} has activation_fn {activation!r}; bertzoo computes fairseq's models with gelu.")
    content = {
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM"] if "lm_head.bias" in entries else ["RobertaModel"],
        "vocab_size": words.shape[0],
        "max_position_embeddings": positions.shape[0],
        **dict(zip(("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
                   (arguments[name] for name in sizes))),
        "hidden_act": activation,
        "hidden_dropout_prob": arguments.get("dropout", 0.1),
        "attention_probs_dropout_prob": arguments.get("attention_dropout", 0.1),
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": PAD_ID,
        "eos_token_id": 2,
    }  # fmt: skip
    if arguments.get("untie_weights_roberta"):
        content["tie_word_embeddings"] = False
    return content


def _describe_classifier(content: dict[str, Any], entries: Mapping[str, Any]) -> None:
    logits = entries.get("classifier.out_proj.weight")
    if logits is not None:
        content["id2label"] = {str(i): f"LABEL_{i}" for i in range(logits.shape[0])}
        content["architectures"] = ["RobertaForSequenceClassification"]
