"""Directories of multi-vector encoders: sentence-transformers' own, PyLate's before version 4, and ColBERT's."""

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertzoo.checkpoints.errors import CheckpointError, add_source_to_errors
from bertzoo.checkpoints.json_files import FLAG, NULL, TEXT, check_values, integer_rule, list_rule, read_json
from bertzoo.checkpoints.sentence_transformers import (
    TOKENS,
    SentenceModule,
    SentenceTransformerFiles,
    read_sentence_transformer_files,
)
from bertzoo.checkpoints.tensors import open_tensors_in_directory, to_finite_float32

METADATA_FILE = "artifact.metadata"  # ColBERT's settings
LENGTHS = ("query_length", "document_length")
READING = (*LENGTHS, "query_expansion")
QUERY_LENGTH = 32  # of ColBERT, where files do not name one
_PYLATE_RULES = {
    "attend_to_expansion_tokens": FLAG | NULL,
    "do_query_expansion": FLAG | NULL,
    "document_length": integer_rule(1) | NULL,
    "document_prefix": TEXT | NULL,
    "query_length": integer_rule(1) | NULL,
    "query_prefix": TEXT | NULL,
    "skiplist_words": list_rule(TEXT) | NULL,
}
_COLBERT_RULES = {
    "attend_to_mask_tokens": FLAG | NULL,
    "doc_maxlen": integer_rule(1) | NULL,
    "doc_token_id": TEXT | NULL,
    "mask_punctuation": FLAG | NULL,
    "query_maxlen": integer_rule(1) | NULL,
    "query_token_id": TEXT | NULL,
}


@dataclass
class LateInteractionFiles:
    """What the files of a multi-vector encoder describe besides the encoder.

    Attributes:
        files: The directory, and the limits of texts.
        layers: The Dense and Normalize modules.
        options: Arguments of the task's constructor.
        settings: The keys of config_sentence_transformers.json, prompts included.
        markers: What stands before queries and documents, which may be a token of its own.
    """

    files: SentenceTransformerFiles
    layers: list[SentenceModule]
    options: dict[str, Any]
    settings: dict[str, Any]
    markers: list[str] = field(default_factory=list)


def read_late_interaction_files(preset: str | Path) -> LateInteractionFiles:
    """Reads the small files of a preset, of a multi-vector encoder in any form or of a plain encoder.

    Raises:
        CheckpointError: There is no such preset, a file is damaged, or it describes what bertzoo does not compute.
    """
    files = read_sentence_transformer_files(preset, TOKENS, level=TOKENS)
    config = read_json(files.directory / "config.json")
    if "HF_ColBERT" in (config.get("architectures") or ()):
        return _read_colbert(files)
    with add_source_to_errors(files.directory):
        kinds = [module.kind for module in files.modules]
        masks = [module for module in files.modules if module.kind == "MultiVectorMask"]
        if not {"Dense", "Normalize", "MultiVectorMask"}.issuperset(kinds) or len(masks) > 1:
            raise CheckpointError(
                f"modules.json lists {', '.join(kinds)} after the encoder; Dense, MultiVectorMask and Normalize are "
                "expected. To begin from a sentence encoder, pass its encoder to the constructor."
            )
    options = {key: files.reading.get(key) for key in READING}
    for mask in masks:
        tasks = mask.settings.get("skiplist_tasks")
        options["skiplist_words"] = mask.settings.get("skiplist_words") or ()
        options["skiplist_tasks"] = [tasks] if isinstance(tasks, str) else tasks or ["document"]
    layers = [module for module in files.modules if module.kind != "MultiVectorMask"]
    settings = dict(files.settings)
    read = LateInteractionFiles(files, layers, options, settings)
    if settings.get("model_type") == "ColBERT" or any(key in settings for key in _PYLATE_RULES):
        with add_source_to_errors(files.directory):
            _add_pylate_settings(read, has_mask=bool(masks))
    return read


def _add_pylate_settings(read: LateInteractionFiles, has_mask: bool) -> None:
    """PyLate's keys of config_sentence_transformers.json; sentence_bert_config.json and modules come first."""
    settings, options = read.settings, read.options
    old = {key: settings.pop(key) for key in _PYLATE_RULES if key in settings}
    check_values(old, _PYLATE_RULES)
    prompts = dict(settings.get("prompts") or {})
    for kind in ("query", "document"):
        if f"{kind}_prefix" in old:
            marker = old[f"{kind}_prefix"] or ""
            prompts[kind] = marker + (prompts.get(kind) or "").removeprefix(marker)
            read.markers.append(marker)
    settings["prompts"] = prompts
    if "query_expansion" not in read.files.reading:
        options["query_expansion"] = None
        if old.get("do_query_expansion") is not False:
            options["query_expansion"] = _expansion(
                old.pop("query_length", None), old.get("attend_to_expansion_tokens")
            )
    for key in LENGTHS:
        options[key] = options[key] or old.get(key)
    if not has_mask:
        words = old.get("skiplist_words")
        options["skiplist_words"] = list(string.punctuation) if words is None else words
        read.layers.append(SentenceModule("Normalize"))
    settings.pop("model_type", None)


def _read_colbert(files: SentenceTransformerFiles) -> LateInteractionFiles:
    """A checkpoint of ColBERT itself, whose projection lies beside the encoder's tensors."""
    metadata = read_json(files.directory / METADATA_FILE, _COLBERT_RULES, default={})
    with open_tensors_in_directory(files.directory) as tensors:
        if "linear.weight" not in tensors:
            raise CheckpointError(f"{files.directory}: a checkpoint of ColBERT must hold the tensor linear.weight.")
        weight = to_finite_float32(tensors["linear.weight"], f"{files.directory}: tensor linear.weight")
    settings = {"units": len(weight), "activation": "linear", "bias": False}
    dense = SentenceModule("Dense", settings, {"linear.weight": weight}, files.directory)
    markers = [metadata.get("query_token_id") or "[unused0]", metadata.get("doc_token_id") or "[unused1]"]
    options = {
        "document_length": metadata.get("doc_maxlen"),
        "query_expansion": _expansion(metadata.get("query_maxlen"), metadata.get("attend_to_mask_tokens")),
        "skiplist_words": list(string.punctuation) if metadata.get("mask_punctuation", True) else [],
    }
    prompts = {kind: f"{marker} " for kind, marker in zip(("query", "document"), markers)}
    prompts |= {kind: text for kind, text in (files.settings.get("prompts") or {}).items() if text}
    layers = [dense, SentenceModule("Normalize")]
    return LateInteractionFiles(files, layers, options, {**files.settings, "prompts": prompts}, markers)


def _expansion(length: int | None, attend: bool | None) -> Mapping[str, Any]:
    return {"strategy": "fixed", "attend": bool(attend), "token": None, "length": length or QUERY_LENGTH}
