"""`bertzoo list`: the bundled presets and the catalog of published checkpoints, or one of them by part."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from bertzoo.checkpoints.catalog import CatalogEntry, load_catalog
from bertzoo.checkpoints.files import bundled_preset_names, bundled_presets_directory
from bertzoo.checkpoints.tensors import open_tensors_in_directory
from bertzoo.cli.app import import_bertzoo, print_table

# The catalog's names of the heads in config.json.
_TASKS = {
    "MaskedLM": "masked-lm",
    "SequenceClassification": "classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
}
# Layers and width, and their keys in DistilBERT's files.
_SHAPE_KEYS = (("num_hidden_layers", "n_layers"), ("hidden_size", "dim"))


def list_presets(
    name: Annotated[
        str | None, typer.Argument(help="Show this one by part: a bundled name, a directory, or a name of the list.")
    ] = None,
    family: Annotated[str | None, typer.Option(help="Only this family, such as bert or deberta-v2.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task, such as sentence-embedding.")] = None,
) -> None:
    """Show the bundled presets and popular checkpoints of the Hugging Face hub; with a NAME, its parameters by part,
    without downloading it."""
    if name is not None:
        print(import_bertzoo().describe(name))
        return

    names, published = bundled_preset_names(), list(load_catalog().values())
    if not names:
        raise ValueError(f"this installation has no bundled presets: {bundled_presets_directory()} holds none.")
    _check("family", family, {row.model_type for row in published})
    _check("task", task, {name for row in published for name in row.tasks})
    bundled = [_describe(bundled_presets_directory() / name) for name in names]
    bundled = [row for row in bundled if family in (None, row[1]) and (task is None or task in _tasks_of(row[5]))]
    if bundled:
        columns = ["name", "family", "layers × width", "weights", "vocabulary", "heads", "size"]
        print_table(columns, bundled, title="Bundled", numeric_columns=["weights", "vocabulary", "size"])
    published = [row for row in published if family in (None, row.model_type) and (task is None or task in row.tasks)]
    if not published:
        print(f"The catalog has no {family} checkpoint for {task}.")
        return
    print("On the Hugging Face hub: write hf:// before the name")
    for row in published:
        print(_describe_published(row))
    print("What is uncertain is left out: read a checkpoint's card. Parameters by part: bertzoo list NAME")


def _check(option: str, value: str | None, known: set[str]) -> None:
    if value is not None and value not in known:
        raise ValueError(f"--{option} {value} is not in the catalog; it has {', '.join(sorted(known))}.")


def _tasks_of(heads: str) -> set[str]:
    return {_TASKS[head] for head in heads.split(", ") if head in _TASKS}


def _describe_published(row: CatalogEntry) -> str:
    """Two lines, since a table of all would be wider than a screen."""
    case = {True: "cased", False: "uncased", None: None}[row.cased]
    facts = [row.model_type, f"{row.parameters / 1e6:.1f} M", f"{row.max_length:,} tokens", case, row.licence]
    return f"{row.name}  ({', '.join(filter(None, facts))})\n    {row.use} [{', '.join(row.tasks)}]"


def _describe(directory: Path) -> list[str]:
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    with open_tensors_in_directory(directory) as tensors:
        parameters = sum(math.prod(tensors.shape(name)) for name in tensors)
    size = sum(path.stat().st_size for path in directory.iterdir() if path.is_file())
    heads = [name.split("For", 1)[1] for name in config.get("architectures") or [] if "For" in name]
    layers, width = (config.get(key, config.get(other)) for key, other in _SHAPE_KEYS)
    return [
        directory.name,
        config.get("model_type", "bert"),
        f"{layers} × {width}",
        f"{parameters / 1e6:.1f} M",
        f"{config.get('vocab_size', 0):,}",
        ", ".join(heads) or "none",
        f"{size / 1e6:.1f} MB",
    ]
