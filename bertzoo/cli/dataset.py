"""The examples of a command: read from a file or the command line, and split for validation."""

import math
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.data.datasets import load_conll, load_squad
from bertzoo.data.files import StringTable, format_suffix, read_string_table
from bertzoo.data.parsing import Examples, Schema, describe_columns, find_column, parse_inputs, require_column
from bertzoo.data.schemas import (
    CHOICES,
    QUESTIONS,
    TARGET_COLUMNS,
    TEXT_COLUMNS,
    TEXTS,
    WORDS,
    find_numbered_choice_columns,
    find_text_columns,
)

VALIDATION_SHARE = 0.1
MOST_CLASSES = 200


@dataclass(frozen=True)
class ColumnNames:
    """The columns that the user named; None for those to find by their names."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Splits:
    """The examples to train on and to validate with. classes: the labels; None for a regression or another task."""

    train: Examples
    validation: Examples
    classes: list[str] | None = None

    def checksum(self) -> int:
        """A number that differs if the data do."""
        parts = [[part.columns, list(part.targets)] for part in (self.train, self.validation)]
        return zlib.crc32(repr(parts).encode())


def _read_examples(file: Path, columns: ColumnNames = ColumnNames()) -> tuple[Schema, Examples]:
    """Reads labelled examples of the task that the kind of the file and its columns define.

    Raises:
        ValueError: The file can't be used, or lacks a column.
    """
    kind = format_suffix(file)
    table: Any
    if kind == ".json":
        table, schema = load_squad(file), QUESTIONS
    elif kind in (".conll", ".conllu"):
        table, schema = load_conll(file), WORDS
    else:
        rows = read_string_table(file)
        if not find_numbered_choice_columns(list(rows.columns)):
            return TEXTS, _read_texts(rows, columns, labelled=True)
        table, schema = rows.columns, CHOICES
    if columns != ColumnNames():
        raise ValueError(f"--text, --pair and --label are for tables of labelled texts. Received: {file}.")
    return schema, parse_inputs(table, schema=schema)


def _read_texts(rows: StringTable, columns: ColumnNames = ColumnNames(), labelled: bool = False) -> Examples:
    """The texts or pairs of a table, without the rows that lack a cell.

    Raises:
        ValueError: There is no such column, none with a known name, or no complete row.
    """
    names = _column_names(rows, columns, labelled)
    used = [name for name in names.values() if name is not None]
    if len(set(used)) < len(used):
        raise ValueError(f"text, pair and label must be different columns. Received: {', '.join(used)}.")
    complete = [i for i, cells in enumerate(zip(*(rows.columns[name] for name in used))) if all(map(str.strip, cells))]
    if not complete:
        raise ValueError(f"{rows.source}: no row has {' and '.join(used)}.")
    found = {role: [rows.columns[name][i] for i in complete] for role, name in names.items() if name is not None}
    if labelled:
        print(f"{rows.source}: {describe_columns(names, list(rows.columns))}")
        if len(complete) < len(rows):
            print(f"{rows.source}: {len(rows) - len(complete)} rows that lack one of these are left out")
        found["label"] = [label.strip() for label in found["label"]]
    return Examples(*TEXTS.normalize_inputs(found, found.pop("label", None)))


def _column_names(rows: StringTable, columns: ColumnNames, labelled: bool) -> dict[str, str | None]:
    """Role -> the name of its column."""
    known = list(rows.columns)
    for name in vars(columns).values():
        if name is not None and name not in known:
            raise ValueError(f"{rows.source} has no column {name!r}; it has {', '.join(known)}.")
    text, pair, label = columns.text, columns.pair, columns.label
    try:
        if text is None and pair is None:
            roles = find_text_columns(known)
            text, pair = roles["text"], roles["second text"]
        elif text is None:
            text = require_column(TEXT_COLUMNS, known)
    except ValueError as error:
        raise ValueError(f"{rows.source}: {error} Or name the column with --text.") from None
    if labelled and label is None:
        label = find_column(TARGET_COLUMNS, known)
        if label is None:
            raise ValueError(
                f"{rows.source} has the columns {', '.join(known)}; none is called {', '.join(TARGET_COLUMNS)}: name "
                "the column of labels with --label."
            )
    return {"text": text, "second text": pair, "label": label if labelled else None}


def read_texts_or_file(texts: list[str], file: Path | None, columns: ColumnNames = ColumnNames()) -> Examples:
    """Texts from the command line or a file; "-" as the only text or as the file reads standard input, a text a line.

    Raises:
        ValueError: Neither or both are given, the file can't be used, or rows lack a text.
    """
    if bool(texts) == (file is not None):
        raise ValueError("give texts, or a file of texts with --file: one of both.")
    if texts and texts != ["-"]:
        return parse_inputs(texts, schema=TEXTS)
    rows = read_string_table(file or Path("-"))
    examples = _read_texts(rows, columns)
    if len(examples) < len(rows):
        missing = len(rows) - len(examples)
        raise ValueError(f"{rows.source}: {missing} of {len(rows)} rows have no text; fill or remove them.")
    return examples


def read_schema_and_splits(
    file: Path, dev_file: Path | None, seed: int, columns: ColumnNames = ColumnNames()
) -> tuple[Schema, Splits]:
    """The examples of a file, and those of `dev_file` or a tenth of the file to validate with.

    Raises:
        ValueError: The files don't fit each other, or there are too few examples.
    """
    schema, examples = _read_examples(file, columns)
    classes = _find_classes(examples.targets, str(file)) if schema == TEXTS else None
    if dev_file is None:
        train, validation = _split(examples, seed, classes)
    else:
        other, validation = _read_examples(dev_file, columns)
        if other != schema:
            raise ValueError(f"{dev_file} must hold examples of the same task as {file}.")
        train = examples
    if schema == TEXTS:
        _check_labels(validation.targets, classes, dev_file or file, file)
        if classes is None:
            train, validation = (
                replace(part, targets=np.array(part.targets, "float64")) for part in (train, validation)
            )
    return schema, Splits(train, validation, classes)


def _split(examples: Examples, seed: int, classes: list[str] | None = None) -> tuple[Examples, Examples]:
    """A seeded tenth to validate with, at least one example, stratified by classes.

    Raises:
        ValueError: There are too few examples.
    """
    from bertzoo.data.task_data import split_row_indices  # imports Keras, which a wrong command does not wait for

    count = len(examples)
    if count < 2 or (classes is not None and count <= len(classes)):
        raise ValueError(f"{count} rows are too few to hold some out: pass held-out rows with --dev.")
    numbers = None if classes is None else np.array([classes.index(label) for label in examples.targets])
    train, validation = split_row_indices(count, max(VALIDATION_SHARE, 1.5 / count), seed, numbers)
    return examples.select(train), examples.select(validation)


def _check_labels(labels: list[str], classes: list[str] | None, dev: Path, file: Path) -> None:
    if classes is None:
        wrong = [label for label in labels if _parse_number(label) is None]
        if wrong:
            raise ValueError(f"{dev} has the label {wrong[0]!r}; the labels of {file} are numbers.")
        return
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        raise ValueError(f"{dev} has the label {unknown[0]!r}; those of {file} are {', '.join(classes[:20])}.")


def _find_classes(labels: list[str], source: str) -> list[str] | None:
    """The classes in the data, sorted, numbers by value; None if the labels are numbers and not all are whole.

    Raises:
        ValueError: There is one class, or so many that the column can't hold labels.
    """
    numbers = [number for number in map(_parse_number, labels) if number is not None]
    numeric = len(numbers) == len(labels)
    if numeric and any(number != math.floor(number) for number in numbers):
        return None
    counts = Counter(labels)
    if len(counts) == 1:
        raise ValueError(f"{source}: all {len(labels)} rows have the label {labels[0]!r}; two classes are needed.")
    if len(counts) > MOST_CLASSES or (len(counts) > 20 and len(counts) > len(labels) / 2):
        raise ValueError(
            f"{source}: {len(labels)} rows have {len(counts)} different labels, such as {labels[0]!r:.60}; "
            "that is not a set of classes: name the right column with --label."
        )
    return sorted(counts, key=float if numeric else None)


def _parse_number(label: str) -> float | None:
    """The finite number that a label is, or None."""
    try:
        value = float(label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
