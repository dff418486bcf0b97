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
from bertzoo.checkpoints.tensors import LazyTensors, StoredTensor
from bertzoo.checkpoints.torch_pickle import LazyTensor, read_torch_file

FILE = "model.pt"
PAD_ID = 1

# fairseq's names -> Hugging Face's: (pattern, replacement), applied in this order.
_RULES = (
    (r"^(encoder|decoder)\.(sentence_encoder\.)?", ""),
    (r"^embed_tokens\.", "embeddings.word_embeddings."),
    (r"^embed_positions\.", "embeddings.position_embeddings."),
    (r"^(emb_layer_norm|layernorm_embedding)\.", "embeddings.LayerNorm."),
    (r"^layers\.(\d+)\.(?=(self_attn|fc1|fc2|final_layer_norm))", r"encoder.layer.\1."),
    (r"\.self_attn\.out_proj\.", ".attention.output.dense."),
    (r"\.self_attn_layer_norm\.", ".attention.output.LayerNorm."),
    (r"\.self_attn\.q_proj\.", ".attention.self.query."),
    (r"\.self_attn\.k_proj\.", ".attention.self.key."),
    (r"\.self_attn\.v_proj\.", ".attention.self.value."),
    (r"\.self_attn\.in_proj_", ".attention.self.{}."),
    (r"\.fc1\.", ".intermediate.dense."),
    (r"\.fc2\.", ".output.dense."),
    (r"\.final_layer_norm\.", ".output.LayerNorm."),
    (r"^lm_head\.weight$", "lm_head.decoder.weight"),
    (r"^classification_heads\.[^.]+\.", "classifier."),
)


def is_checkpoint(directory: Path) -> bool:
    """Whether the directory holds a fairseq checkpoint and no Hugging Face one."""
    return (directory / FILE).is_file() and not (directory / "config.json").exists()


def read_config_and_tensors(
    directory: Path, head_names: tuple[str, ...] = ()
) -> tuple[dict[str, Any], LazyTensors, list[str]]:
    """The content of a config.json, the tensors under Hugging Face's names, and notes for the load report.

    Raises:
        CheckpointError: The file is damaged, or is no RoBERTa.
    """
    path = directory / FILE
    settings, state = _settings_and_state(read_torch_file(path), path)
    classifiers = {match[1] for name in state if (match := re.search(r"\bclassification_heads\.([^.]+)\.", name))}
    entries: dict[str, StoredTensor | LazyTensor] = {}
    for name, tensor in state.items():
        hf_name = name
        for pattern, replacement in _RULES:
            hf_name = re.sub(pattern, replacement, hf_name)
        if hf_name.rpartition(".")[-1] in ("version", "_float_tensor"):
            continue
        if not hf_name.startswith(("embeddings.", "encoder.layer.", "lm_head.", "classifier.")):
            raise CheckpointError(f"{path} holds {name[:100]}, which no RoBERTa has; bertzoo can't compute this model.")
        if "{}" in hf_name:
            for i, projection in enumerate(("query", "key", "value")):
                entries[hf_name.format(projection)] = _third(tensor, i)
        elif len(classifiers) == 1 or not hf_name.startswith("classifier."):
            entries[hf_name] = tensor
    content = _config(settings, entries, path)
    # RoBERTa has no segments; Hugging Face's form of it has a table of one row.
    row = np.zeros((1, content["hidden_size"]), "float32")
    entries["embeddings.token_type_embeddings.weight"] = StoredTensor("F32", row.shape, lambda: row)
    if (directory / "sentencepiece.bpe.model").is_file():
        content["model_type"] = "xlm-roberta"
    notes = [f"fairseq's format: the file has {len(classifiers)} classifiers; none was read"] * (len(classifiers) > 1)
    return content, LazyTensors(entries), notes


def _settings_and_state(structure: object, path: Path) -> tuple[Mapping[str, Any], Mapping[str, LazyTensor]]:
    """The settings lie under "args", or in newer files under "cfg", "model"; the tensors under "model"."""
    match structure:
        case {"args": dict() as settings, "model": dict() as state} | {
            "cfg": {"model": dict() as settings},
            "model": dict() as state,
        }:
            return settings, {str(name): value for name, value in state.items() if isinstance(value, LazyTensor)}
    raise CheckpointError(f"{path} is no fairseq checkpoint: args (or cfg) and model are expected in it.")


def _third(tensor: LazyTensor, i: int) -> StoredTensor:
    """One of the three projections that are fused in a tensor."""
    size = tensor.shape[0] // 3
    return StoredTensor(tensor.dtype, (size, *tensor.shape[1:]), lambda: tensor.read()[i * size : (i + 1) * size])


def _config(settings: Mapping[str, Any], entries: Mapping[str, Any], path: Path) -> dict[str, Any]:
    words, positions = (entries.get(f"embeddings.{table}_embeddings.weight") for table in ("word", "position"))
    sizes = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads")
    lacking = [name for name in sizes if not isinstance(settings.get(name), int)]
    if lacking or words is None or positions is None:
        raise CheckpointError(f"{path} is no RoBERTa: it lacks {', '.join(lacking) or 'its embeddings'}.")
    activation = settings.get("activation_fn", "gelu")
    if activation != "gelu":
        raise CheckpointError(f"{path} has activation_fn {activation!r}; bertzoo computes fairseq's models with gelu.")
    content = {
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM" if "lm_head.bias" in entries else "RobertaModel"],
        "vocab_size": words.shape[0],
        "max_position_embeddings": positions.shape[0],
        "num_hidden_layers": settings["encoder_layers"],
        "hidden_size": settings["encoder_embed_dim"],
        "intermediate_size": settings["encoder_ffn_embed_dim"],
        "num_attention_heads": settings["encoder_attention_heads"],
        "hidden_act": activation,
        "hidden_dropout_prob": settings.get("dropout", 0.1),
        "attention_probs_dropout_prob": settings.get("attention_dropout", 0.1),
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": PAD_ID,
        "eos_token_id": 2,
    }
    if settings.get("untie_weights_roberta"):
        content["tie_word_embeddings"] = False
    if (logits := entries.get("classifier.out_proj.weight")) is not None:
        content["id2label"] = {str(i): f"LABEL_{i}" for i in range(logits.shape[0])}
        content["architectures"] = ["RobertaForSequenceClassification"]
    return content
