"""Directories of sentence-transformers: an encoder's checkpoint, and small files that describe the layers after it.

`modules.json` lists the modules: the encoder in the directory itself, `1_Pooling/`, then any of `2_Dense/` (with
weights) and `2_Normalize/`; of sparse encoders `1_SpladePooling/`, of multi-vector encoders `1_Dense/`,
`2_MultiVectorMask/` and `3_Normalize/`. A Router lists those for queries and those for documents in
`router_config.json`. `sentence_bert_config.json` holds the maximum length, `config_sentence_transformers.json` the
prompts. Class names are compared with a fixed list; nothing is imported or executed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError, add_source_to_errors
from bertzoo.checkpoints.files import ROUTER_FILE, expand_user, find_preset_directory
from bertzoo.checkpoints.json_files import (
    FLAG,
    NULL,
    OBJECT,
    TEXT,
    Rule,
    check_values,
    choice_rule,
    encode_json,
    integer_rule,
    list_rule,
    object_rule,
    read_json,
)
from bertzoo.checkpoints.saving import Content, recover_interrupted_save
from bertzoo.checkpoints.tensors import build_weight_files, open_tensors_in_directory, to_finite_float32

DOCUMENT_PROMPTS = ("document", "passage", "corpus")
MODULES_FILE, LENGTH_FILE = "modules.json", "sentence_bert_config.json"
SETTINGS_FILE = "config_sentence_transformers.json"
VECTOR, TOKENS, SCORES = "sentence_embedding", "token_embeddings", "scores"  # what a module gives
# The keys of older files, one for each pooling that is concatenated.
OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
LENGTH_RULES = {
    "do_lower_case": FLAG | NULL,
    "document_length": integer_rule(1) | NULL,
    "max_seq_length": integer_rule(1) | NULL,
    "query_expansion": OBJECT | NULL,
    "query_length": integer_rule(1) | NULL,
    "transformer_task": TEXT,
}
SETTINGS_RULES = {
    "activation_fn": TEXT | NULL,
    "default_prompt_name": TEXT | NULL,
    "max_active_dims": integer_rule(1) | NULL,
    "prompts": object_rule(TEXT | NULL) | NULL,
    "similarity_fn_name": TEXT | NULL,
    "truncate_dim": integer_rule(1) | NULL,
}
MODULE_RULES = {
    "Pooling": {
        "include_prompt": FLAG,
        "pooling_mode": TEXT | list_rule(TEXT) | NULL,
        **dict.fromkeys(OLD_POOLINGS, FLAG),
    },
    "Dense": {
        "activation_function": TEXT,
        "bias": FLAG,
        "out_features": integer_rule(1),
        "use_residual": FLAG,
        **dict.fromkeys(("module_input_name", "module_output_name"), TEXT | NULL),
    },
    "MultiVectorMask": {
        "keep_only_token_ids": NULL,
        "skiplist_tasks": TEXT | list_rule(TEXT) | NULL,
        "skiplist_words": list_rule(TEXT) | NULL,
    },
    "Normalize": {"module_input_name": TEXT},
    "SparseStaticEmbedding": {"frozen": FLAG, "path": TEXT | NULL},
    "SpladePooling": {
        "activation_function": choice_rule("relu", "log1p_relu"),
        "pooling_strategy": choice_rule("max", "sum"),
    },
}
DOCUMENT_ENCODER = "document_0_Transformer"  # the folder of an encoder that reads documents alone
ENCODERS = ("Transformer", "MLMTransformer")
ROUTER_RULES = {"structure": object_rule(list_rule(TEXT)), "types": object_rule(TEXT)}
_MODULES = Rule(
    "a list of modules, each with a type and a path, of which an encoder is expected to come first",
    lambda modules: isinstance(modules, list) and len(modules) > 0 and all(map(_is_module, modules)),
)
# torch's module -> Keras's activation.
ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}


@dataclass(frozen=True)
class SentenceModule:
    """One module after the encoder, or in its place: its kind (a key of `MODULE_RULES`), settings, weights by name, and
    its directory."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: Path = Path()


@dataclass(frozen=True)
class SentenceTransformerFiles:
    """What a directory describes besides the encoder.

    Attributes:
        directory: The directory of the encoder and its tokenizer.
        modules: The modules after the encoder; empty for a plain encoder.
        query_modules: Those that read queries in place of the encoder, if there are any.
        max_length: The maximum length in tokens, or None.
        lowercase: Whether texts are lowercased before the tokenizer.
        settings: The content of config_sentence_transformers.json.
        reading: The content of sentence_bert_config.json.
    """

    directory: Path
    modules: tuple[SentenceModule, ...] = ()
    query_modules: tuple[SentenceModule, ...] = ()
    max_length: int | None = None
    lowercase: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)


def is_modular_reranker(preset: str | Path) -> bool:
    """Whether a preset's modules.json lists a dense layer that gives the scores of a reranker."""
    root, entries = _find(preset)
    if len(entries) < 2:
        return False
    with add_source_to_errors(root / MODULES_FILE):
        kind, directory = _kind_and_path(root, entries[-1])
    settings = read_json(directory / "config.json", MODULE_RULES.get(kind, {}), default={})
    return settings.get("module_output_name") == SCORES


def is_modular_classifier(preset: str | Path) -> bool:
    """Whether a preset's config.json says that the head of a text classifier is among its modules."""
    content = read_json(_find(preset)[0] / "config.json", default={})
    own = content.get("bertzoo") if isinstance(content, dict) else None
    return isinstance(own, dict) and own.get("head") == MODULES_FILE


def read_sentence_transformer_files(
    preset: str | Path, output: str = VECTOR, task: str = "feature-extraction", level: str = VECTOR
) -> SentenceTransformerFiles:
    """Reads the small files of a preset, of sentence-transformers or of a plain encoder.

    Args:
        preset: As for `find_preset_directory`.
        output: What the last module gives: VECTOR, TOKENS, or SCORES of a reranker.
        task: What the encoder is for: "feature-extraction", or "fill-mask", with its masked-LM head.
        level: What Dense and Normalize modules read and the others give, VECTOR or TOKENS.

    Raises:
        CheckpointError: There is no such preset, a file is damaged, or it describes what bertzoo does not compute.
    """
    root, entries = _find(preset)
    settings = read_json(root / SETTINGS_FILE, SETTINGS_RULES, default={})
    if not entries:
        return SentenceTransformerFiles(root, settings=settings)
    with add_source_to_errors(root / MODULES_FILE):
        parts = [_kind_and_path(root, entry) for entry in entries]
        queries: list[tuple[str, Path]] = []
        if parts[0][0] == "Router":
            queries, parts = _read_router(parts[0][1], parts[1:])
        (kind, directory), *rest = parts
        reading = read_json(directory / LENGTH_FILE, LENGTH_RULES, default={})
        own = reading.get("transformer_task", "fill-mask" if kind == "MLMTransformer" else "feature-extraction")
        if kind not in ENCODERS or own != task:
            raise CheckpointError(
                f"an encoder is expected first, a Transformer for {task}. Received: {kind} for {own}."
            )
        modules, query_modules = (
            tuple(_read_module(path, kind, level) for kind, path in some) for some in (rest, queries)
        )
        outputs = [module.settings.get("output", level) for module in modules]
        if outputs and outputs != [*[level] * (len(outputs) - 1), output]:
            raise CheckpointError(
                f"the last module must give {output}, and those before it {level}. Received: {', '.join(outputs)}. "
                "Rerankers are loaded with CrossEncoder, sentence encoders with SentenceEncoder."
            )
    return SentenceTransformerFiles(
        directory,
        modules,
        query_modules,
        reading.get("max_seq_length"),
        bool(reading.get("do_lower_case")),
        settings,
        reading,
    )


def _read_router(root: Path, rest: list) -> tuple[list[tuple[str, Path]], list[tuple[str, Path]]]:
    """The kinds and paths of the modules for queries, and of those for documents."""
    content = read_json(root / ROUTER_FILE, ROUTER_RULES)
    structure, types = content["structure"], content["types"]
    if set(structure) != {"query", "document"} or not all(
        name in types for names in structure.values() for name in names
    ):
        raise CheckpointError(
            f"{ROUTER_FILE} must have modules for queries and for documents. Received: {', '.join(structure)}."
        )
    queries, documents = (
        [_kind_and_path(root, {"type": types[name], "path": name}) for name in structure[route]] + rest
        for route in ("query", "document")
    )
    if not documents or [kind for kind, _ in queries] != ["SparseStaticEmbedding"]:
        raise CheckpointError(
            f"{ROUTER_FILE} must have a SparseStaticEmbedding for queries, and an encoder for documents. Received: "
            f"{', '.join(kind for kind, _ in queries)} for queries."
        )
    return queries, documents


def document_prompt_name(prompts: Mapping[str, str]) -> str | None:
    """The name of the prompt for documents, or None."""
    return next((name for name in DOCUMENT_PROMPTS if name in prompts), None)


def read_sentence_transformers_config(preset: str | Path) -> dict[str, Any]:
    """The content of config_sentence_transformers.json of a preset; empty where it has none."""
    return read_json(_find(preset)[0] / SETTINGS_FILE, SETTINGS_RULES, default={})


def _find(preset: str | Path) -> tuple[Path, list[dict[str, Any]]]:
    """The root of a preset, and the entries of its modules.json."""
    folder = expand_user(preset)
    recover_interrupted_save(folder)
    # Before version 2 the encoder had a folder of its own, and the root no config.json.
    root = folder if (folder / MODULES_FILE).is_file() else find_preset_directory(preset)
    return root, read_json(root / MODULES_FILE, _MODULES, default=[])


def _is_module(entry: Any) -> bool:
    return isinstance(entry, dict) and {type(entry.get("type")), type(entry.get("path", ""))} == {str}


def _kind_and_path(root: Path, entry: Mapping[str, Any]) -> tuple[str, Path]:
    library, _, rest = entry["type"].partition(".")
    kind = rest.rpartition(".")[-1]
    if library not in ("sentence_transformers", "pylate") or kind not in (*ENCODERS, "Router", *MODULE_RULES):
        raise CheckpointError(
            f"modules.json names {entry['type']}; bertzoo computes sentence_transformers' {', '.join(ENCODERS)}, "
            f"{', '.join(MODULE_RULES)}, and runs no code that comes with a checkpoint."
        )
    path = PurePosixPath(entry.get("path", ""))
    if path.is_absolute() or ".." in path.parts or "\\" in str(path) or ":" in str(path):
        raise CheckpointError(f"modules.json has the path {str(path)!r}; a name inside the directory is expected.")
    return kind, root / path


def _read_module(directory: Path, kind: str, level: str) -> SentenceModule:
    if kind not in MODULE_RULES:
        raise CheckpointError(f"there is a second {kind} after the encoder.")
    settings, tensors = read_json(directory / "config.json", MODULE_RULES[kind], default={}), {}
    has_weights = kind == "SparseStaticEmbedding" and not settings.get("path")
    if has_weights or kind == "Dense" or "attention" in (settings.get("pooling_mode") or ()):
        with open_tensors_in_directory(directory) as stored:
            tensors = {name: to_finite_float32(stored[name], f"{directory}: tensor {name}") for name in stored}
    with add_source_to_errors(directory / "config.json"):
        if kind == "Dense":
            settings = _dense_settings(settings, len(tensors.get("linear.weight", ())), level)
        elif kind == "Normalize" and settings.get("module_input_name", level) != level:
            raise CheckpointError(f"it describes a Normalize of {settings['module_input_name']}; {level} is expected.")
        elif kind == "Pooling":
            settings = _pooling_settings(settings)
    return SentenceModule(kind, settings, tensors, directory)


def _pooling_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    modes = settings.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in OLD_POOLINGS.items() if settings.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    return {"modes": modes, "include_prompt": settings.get("include_prompt", True)}


def _dense_settings(settings: Mapping[str, Any], units: int, level: str) -> dict[str, Any]:
    activation = settings.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise CheckpointError(f"activation_function must be one of {', '.join(ACTIVATIONS)}. Received: {activation!r}.")
    source, output = (settings.get(key) or level for key in ("module_input_name", "module_output_name"))
    if settings.get("use_residual") or source != level or output not in (level, SCORES):
        raise CheckpointError(f"it describes a Dense that bertzoo does not compute: {settings}.")
    check_values({"out_features": None, **settings}, {"out_features": integer_rule(units, units)})
    bias = settings.get("bias", True)
    return {"units": units, "activation": ACTIVATIONS[activation], "bias": bias, "output": output}


# Where sentence-transformers has the classes of modules: by the first names that it gave them, which all versions read.
_HOMES = {
    "MultiVectorMask": "multi_vector_encoder.modules.multi_vector_mask",
    "SparseStaticEmbedding": "sparse_encoder.modules.sparse_static_embedding",
    "SpladePooling": "sparse_encoder.modules.splade_pooling",
    "Router": "base.modules.router",
}


def build_sentence_transformer_files(
    modules: Sequence[SentenceModule],
    max_length: int | None,
    settings: Mapping[str, Any],
    reading: Mapping[str, Any] | None = None,
    query_module: SentenceModule | None = None,
) -> dict[str, Content]:
    """The files that make a checkpoint directory one of sentence-transformers, for `write_preset`.

    Args:
        modules: The modules after the encoder, with settings in sentence-transformers' keys.
        max_length: The maximum length in tokens.
        settings: The content of config_sentence_transformers.json.
        reading: Further content of sentence_bert_config.json.
        query_module: What reads queries in place of the encoder. The encoder is then in the folder `DOCUMENT_ENCODER`.
    """
    folders = {f"{number}_{module.kind}": module for number, module in enumerate(modules, start=1)}
    lengths, files = "", dict[str, Content]()
    entries = [("", "Transformer"), *((folder, module.kind) for folder, module in folders.items())]
    if query_module is not None:
        query_folder, lengths, entries = f"query_0_{query_module.kind}", f"{DOCUMENT_ENCODER}/", [("", "Router")]
        folders = {f"document_{folder}": module for folder, module in folders.items()}
        types = {DOCUMENT_ENCODER: _type("Transformer"), **{name: _type(one.kind) for name, one in folders.items()}}
        content = {
            "types": {query_folder: _type(query_module.kind), **types},
            "structure": {"query": [query_folder], "document": list(types)},
            "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
        }
        files[ROUTER_FILE] = encode_json(content)
        folders[query_folder] = query_module
    for folder, module in folders.items():
        files[f"{folder}/config.json"] = encode_json(dict(module.settings))
        if module.tensors:
            files.update({f"{folder}/{name}": write for name, write in build_weight_files(module.tensors).items()})
    files[MODULES_FILE] = encode_json(
        [{"idx": i, "name": str(i), "path": path, "type": _type(kind)} for i, (path, kind) in enumerate(entries)]
    )
    files[lengths + LENGTH_FILE] = encode_json(
        {"max_seq_length": max_length, "do_lower_case": False, **(reading or {})}
    )
    files[SETTINGS_FILE] = encode_json(dict(settings))
    return files


def _type(kind: str) -> str:
    return f"sentence_transformers.{_HOMES.get(kind, 'models')}.{kind}"


def build_cross_encoder_files(settings: Mapping[str, Any]) -> dict[str, bytes]:
    """The files from which sentence-transformers reads the settings of a cross-encoder."""
    entry = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    reading = {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
    }
    content = {"model_type": "CrossEncoder", **settings}
    return {MODULES_FILE: encode_json([entry]), LENGTH_FILE: encode_json(reading), SETTINGS_FILE: encode_json(content)}
