"""Data sets for `fit`: public sets by name, the bundled samples, CoNLL files and SQuAD's json."""

import json
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

from bertzoo.data.files import load_table, read_text
from bertzoo.data.parsing import class_label_names, label_column_values

SPLITS = ("train", "dev", "test")
FOLDER = "BERTZOO_DATA"


class _HubSource(NamedTuple):
    """A set of `datasets`: its path, its configuration, and the name of its dev split."""

    path: str
    config: str | None = None
    dev: str = "validation"


_GLUE = ("cola", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli")
SETS: dict[str, _HubSource] = {
    **{name: _HubSource("nyu-mll/glue", name) for name in _GLUE},
    "mnli": _HubSource("nyu-mll/glue", "mnli", "validation_matched"),
    "mnli_mismatched": _HubSource("nyu-mll/glue", "mnli", "validation_mismatched"),
    "conll2003": _HubSource("eriktks/conll2003"),
    "wnut17": _HubSource("leondz/wnut_17"),
    "ewt_pos": _HubSource("universal-dependencies/universal_dependencies", "en_ewt"),
    "squad": _HubSource("rajpurkar/squad"),
    "squad_v2": _HubSource("rajpurkar/squad_v2"),
    "swag": _HubSource("allenai/swag", "regular"),
    "imdb": _HubSource("stanfordnlp/imdb", None, "test"),
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
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            f"{name} is not on disk in {FOLDER}, and fetching it needs `pip install datasets`."
        ) from error
    path, config, dev = SETS[name]
    table = datasets.load_dataset(path, config, split=dev if split == "dev" else split)
    for column in [column for column in table.features if class_label_names(table, column)]:
        names = label_column_values(table, column)
        table = table.remove_columns(column).add_column(column, names)
    return table


def _from_folder(folder: Path, split: str) -> Any:
    readers: dict[str, Callable] = dict.fromkeys((".tsv", ".csv", ".jsonl", ".parquet"), load_table)
    readers |= {".conll": load_conll, ".conllu": load_conll, ".json": load_squad}
    for suffix, reader in readers.items():
        for path in (folder / f"{split}{suffix}", folder / f"{split}{suffix}.gz"):
            if path.is_file():
                return reader(path)
    raise ValueError(f"{folder} has no {split}{', '.join(readers)} (or .gz); it has {sorted(os.listdir(folder))}.")


def load_reviews(split: str | None = None) -> tuple[list[str], list[str]]:
    """Short reviews with their labels, in a fixed mixed order.

    There are 600 in `train` and 120 in `test`; half of each are `negative`, half `positive`, and each is at most 24
    WordPiece tokens long, [CLS] and [SEP] included.

    Args:
        split: `"train"`, `"test"`, or None for both.

    Returns:
        Texts and labels, two lists of the same length.

    Raises:
        ValueError: `split` is another value.

    Example:
        >>> texts, labels = bz.data.load_reviews("train")
        >>> len(texts), sorted(set(labels))
        (600, ['negative', 'positive'])
    """
    if split not in ("train", "test", None):
        raise ValueError(f"split must be 'train', 'test' or None, for all reviews. Received: {split!r}.")
    rows = [row for row in _bundled("reviews_en.tsv") if split in (None, row[2])]
    return [text for text, _, _ in rows], [label for _, label, _ in rows]


def load_cloze() -> tuple[list[str], list[str]]:
    """Fifty plain facts with one `[MASK]` each, to test a lower-cased masked language model.

    Returns:
        Texts, and the lower-case word that belongs at each `[MASK]`.
    """
    texts, answers = zip(*_bundled("cloze_en.tsv"))
    return list(texts), list(answers)


def _bundled(name: str) -> list[list[str]]:
    lines = resources.files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]


def load_conll(
    path: str | Path, word_column: int | None = None, tag_column: int | None = None
) -> dict[str, list[list[str]]]:
    """Reads tagged sentences for `TokenClassifier.fit` from a CoNLL file, plain or .gz.

    The file has a line for each word, with columns separated by tabs or spaces, and a blank line between sentences.
    Comments (#), document lines (-DOCSTART-) and, in .conllu, multiword tokens (1-2) and empty words (1.1) are skipped.

    Args:
        path: The file.
        word_column: Index of the column of words; by default the first, in .conllu the second.
        tag_column: Index of the column of tags; by default the last, in .conllu the fourth (universal parts of speech).

    Returns:
        `tokens` and `tags`, lists of sentences.

    Raises:
        ValueError: A line lacks a column, or there are no sentences.

    Example:
        >>> with open("tagged.conll", "w") as file:
        ...     _ = file.write("Rome B-place\\nis O\\nold O\\n")
        >>> bz.data.load_conll("tagged.conll")
        {'tokens': [['Rome', 'is', 'old']], 'tags': [['B-place', 'O', 'O']]}
    """
    path = Path(path)
    universal = ".conllu" in path.name
    word_column = (1 if universal else 0) if word_column is None else word_column
    tag_column = (3 if universal else -1) if tag_column is None else tag_column
    sentences: list[list[tuple[str, str]]] = [[]]
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        columns = line.split("\t") if "\t" in line.strip() else line.split()
        if not columns or line.startswith("-DOCSTART-"):
            sentences.append([])
            continue
        # A word may be "#"; a comment has no second column. In a .conllu file, words are numbered.
        if not columns[0].isdigit() if universal else line.startswith("#") and "\t" not in line:
            continue
        if len(columns) < max(word_column + 1, 2 if tag_column == -1 else tag_column + 1):
            raise ValueError(f"{path}, line {number}: {len(columns)} columns ({line!r:.60}) are too few.")
        sentences[-1].append((columns[word_column], columns[tag_column]))
    sentences = list(filter(None, sentences))
    if not sentences:
        raise ValueError(f"{path} holds no sentences.")
    words, tags = zip(*(zip(*sentence) for sentence in sentences))
    return {"tokens": list(map(list, words)), "tags": list(map(list, tags))}


def load_squad(path: str | Path) -> list[dict[str, Any]]:
    """Reads the questions of a SQuAD file, 1.1 or 2.0, plain or .gz, for `QuestionAnswerer.fit`.

    Returns:
        Dicts with `id`, `title`, `question`, `context` and `answers`, a list of {"text", "answer_start"}, which is
        empty for questions without an answer.

    Raises:
        ValueError: It is not a SQuAD file.
    """
    try:
        articles = json.loads(read_text(Path(path)))["data"]
        return [
            {
                "id": question["id"],
                "title": article.get("title", ""),
                "question": question["question"],
                "context": paragraph["context"],
                "answers": [] if question.get("is_impossible") else question["answers"],
            }
            for article in articles
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a SQuAD file: {error!r}.") from error
