"""Public data sets by name, from a folder or through the `datasets` library."""

import os
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

from bertzoo.data.loaders import load_conll, load_squad
from bertzoo.data.table_files import load_table

SPLITS = ("train", "dev", "test")
FOLDER = "BERTZOO_DATA"


class Source(NamedTuple):
    """A set of `datasets`: its path, its configuration, and the name of its dev split."""

    path: str
    config: str | None = None
    dev: str = "validation"


_GLUE = ("cola", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli")
SETS: dict[str, Source] = {
    **{name: Source("nyu-mll/glue", name) for name in _GLUE},
    "mnli": Source("nyu-mll/glue", "mnli", "validation_matched"),
    "mnli_mismatched": Source("nyu-mll/glue", "mnli", "validation_mismatched"),
    "conll2003": Source("eriktks/conll2003"),
    "wnut17": Source("leondz/wnut_17"),
    "ewt_pos": Source("universal-dependencies/universal_dependencies", "en_ewt"),
    "squad": Source("rajpurkar/squad"),
    "squad_v2": Source("rajpurkar/squad_v2"),
    "swag": Source("allenai/swag", "regular"),
    "imdb": Source("stanfordnlp/imdb", None, "test"),
}
_READERS = {
    ".tsv": load_table,
    ".csv": load_table,
    ".jsonl": load_table,
    ".parquet": load_table,
    ".conll": load_conll,
    ".conllu": load_conll,
    ".json": load_squad,
}


def load(name: str, split: str = "train", folder: str | Path | None = None) -> Any:
    """Loads a split of a public data set for the task's `fit`.

    If the folder contains `NAME/SPLIT.SUFFIX` (.tsv, .csv, .jsonl, .parquet, .conll, .conllu, SQuAD's .json, also as
    .gz), this file is read, whatever the name. Otherwise the set is fetched through the `datasets` library.

    Args:
        name: A name of `SETS`, such as "mrpc", "stsb", "conll2003", "squad_v2", or of a folder.
        split: "train", "dev" or "test".
        folder: The folder of the data sets; by default the environment variable BERTZOO_DATA.

    Returns:
        From files: a dict of columns for tables and CoNLL files, a list of records for SQuAD. From `datasets`: its
        `Dataset`, with labels by name.

    Raises:
        ValueError: The name or the split is unknown, the name is a path, or the folder has no such file.
        ImportError: The set is not on disk and `datasets` is not installed.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}. Received: {split!r}.")
    # A Windows path has all separators that others have, and drives.
    if name in ("", "..") or PureWindowsPath(name).name != name:
        raise ValueError(f"name must be that of a set or of a folder, not a path. Received: {name!r}.")
    folder = folder or os.environ.get(FOLDER)
    if folder and (Path(folder) / name).is_dir():
        return _from_folder(Path(folder) / name, split)
    if name not in SETS:
        where = f", and {folder} has no folder of this name" if folder else f"; {FOLDER} names no folder of sets"
        raise ValueError(f"{name!r} is not one of the sets {', '.join(sorted(SETS))}{where}.")
    return _from_hub(SETS[name], split)


def _from_folder(folder: Path, split: str):
    for suffix, reader in _READERS.items():
        for ending in ("", ".gz"):
            path = folder / f"{split}{suffix}{ending}"
            if path.is_file():
                return reader(path)
    raise ValueError(f"{folder} has no {split}{', '.join(_READERS)} (or .gz); it has {sorted(os.listdir(folder))}.")


def _from_hub(source: Source, split: str):
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            f"{source.path} is not in {FOLDER} on disk, and fetching it needs `pip install datasets`."
        ) from error
    found = datasets.load_dataset(source.path, source.config, split=source.dev if split == "dev" else split)
    return _with_names(found)


def _with_names(found):
    """Replaces label ids by names, in each row one id or a list."""
    for column, feature in found.features.items():
        inner = getattr(feature, "feature", feature)
        names = getattr(inner, "names", None)
        if not names:
            continue

        def rename(row, column=column, names=names):
            value = row[column]
            if isinstance(value, (list, tuple)):
                return {column: [names[i] for i in value]}
            return {column: names[value] if value >= 0 else None}  # hidden test labels are -1

        changed = found.features.copy()
        changed[column] = _plain_feature(feature)
        found = found.map(rename, features=changed)
    return found


def _plain_feature(feature):
    import datasets

    text = datasets.Value("string")
    return text if not hasattr(feature, "feature") else type(feature)(text)
