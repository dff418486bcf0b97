"""Which task a checkpoint was trained for."""

from pathlib import Path
from types import ModuleType
from typing import Any

from bertzoo.checkpoints import gliner
from bertzoo.checkpoints.formats import open_checkpoint
from bertzoo.checkpoints.json_files import read_json
from bertzoo.checkpoints.sentence_transformers import (
    MODULES_FILE,
    SETTINGS_FILE,
    is_modular_classifier,
    is_modular_reranker,
)

# In this order: ALBERT's ForPreTraining is the first one with both of its heads.
TASKS = (
    "TextClassifier",
    "MaskedLM",
    "TokenClassifier",
    "QuestionAnswerer",
    "MultipleChoice",
    "ForPreTraining",
    "ReplacedTokenDetector",
    "NextSentencePredictor",
)


def task_of_architecture(bz: ModuleType, directory: Path) -> tuple[Any, str]:
    """The task that the first of `architectures` in config.json names, None if there is none, and that name.

    Args:
        bz: The package, with Keras imported.
        directory: The checkpoint.
    """
    from bertzoo.models.registry import config_and_family_from_hf

    with open_checkpoint(directory, config_and_family_from_hf) as checkpoint:
        family, named = checkpoint.family, (checkpoint.config.extra.get("architectures") or [""])[0]
    for task in (getattr(bz, name) for name in TASKS):
        if set(task.heads) <= set(family.heads):
            suffix = task.hf_class or family.heads[task.heads[0]].hf_class
            if named == family.hf_name + suffix:
                return task, named
    return None, named


def task_for_inference(bz: ModuleType, directory: Path) -> Any:
    """The task as which a checkpoint is exported and served: for a directory of sentence-transformers and for a plain
    encoder its vectors, for a classifier of one label its scores of pairs, for a model of GLiNER entities of any label,
    otherwise what its architecture names.

    Args:
        bz: The package, with Keras imported.
        directory: The checkpoint.
    """
    if is_modular_classifier(directory):
        return bz.CrossEncoder if is_modular_reranker(directory) else bz.TextClassifier
    if gliner.is_checkpoint(directory):
        return bz.EntityFinder
    if (directory / MODULES_FILE).is_file():
        kind = read_json(directory / SETTINGS_FILE, default={}).get("model_type")
        named = kind in ("CrossEncoder", "MultiVectorEncoder", "SparseEncoder")
        return getattr(bz, kind) if named else bz.SentenceEncoder
    task, _ = task_of_architecture(bz, directory)
    if task is bz.TextClassifier:
        config = read_json(directory / "config.json")
        labels = config.get("num_labels") or len(config.get("id2label") or (0, 1))
        return bz.CrossEncoder if labels == 1 and config.get("problem_type") != "regression" else task
    return task or bz.SentenceEncoder
