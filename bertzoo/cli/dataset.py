"""From a table to training data: which columns, which classes, which rows are held out."""

import math
import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np

from bertzoo.data.parsing import find_column
from bertzoo.data.table_files import Rows

HELD_OUT = 0.1
MOST_CLASSES = 200


@dataclass(frozen=True)
class Names:
    """The columns that are used; `pair` None where the inputs are single texts."""

    text: str
    pair: str | None
    label: str | None


@dataclass(frozen=True)
class Examples:
    """Texts, their partners (None where there are none) and labels, as many each; labels None where nobody asked."""

    texts: list[str]
    pairs: list[str] | None
    labels: list[str] | None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def x(self) -> list[str] | tuple[list[str], list[str]]:
        """In the form that tasks take."""
        return self.texts if self.pairs is None else (self.texts, self.pairs)

    def take(self, rows) -> "Examples":
        """Some of the rows."""
        columns = (self.texts, self.pairs, self.labels)
        return Examples(*(None if column is None else [column[i] for i in rows] for column in columns))


@dataclass(frozen=True)
class Parts:
    """What is learnt from and what is held out; `classes` is None for a regression."""

    train: Examples
    held: Examples
    classes: list[str] | None

    def targets(self, examples: Examples) -> list[str] | np.ndarray:
        """The labels of a part as tasks take them: names, or numbers for a regression."""
        return examples.labels if self.classes else np.array([float(label) for label in examples.labels])

    def checksum(self) -> int:
        """A number that differs where the data do."""
        return zlib.crc32(repr([vars(self.train), vars(self.held)]).encode())


def find_columns(rows: Rows, text: str | None, pair: str | None, label: str | None, needs_label: bool) -> Names:
    """The columns by name, as given or guessed (see `bertzoo.data.schemas`; capitals don't matter).

    A partner column is guessed only where the text column is.

    Raises:
        ValueError: There is no such column, or none with a known name.
    """
    from bertzoo.data.schemas import TARGET_COLUMNS, TEXT_COLUMNS, find_text_columns

    first, second = _column(rows, text, TEXT_COLUMNS, "--text"), None
    if pair is not None:
        second = _column(rows, pair, (), "--pair")
    elif text is None:
        first, second, _ = find_text_columns(list(rows.columns)).values()
    target = _column(rows, label, TARGET_COLUMNS, "--label") if needs_label else None
    names = Names(first, second, target)
    used = [name for name in (first, second, target) if name is not None]
    if len(set(used)) < len(used):
        raise ValueError(f"text, pair and label must be different columns; they are {', '.join(used)}.")
    return names


def _column(rows: Rows, given: str | None, guesses: tuple[str, ...], option: str) -> str:
    if given is not None:
        if given in rows.columns:
            return given
        raise ValueError(f"{rows.source} has no column {given!r}; it has {', '.join(rows.columns)}.")
    found = find_column(guesses, list(rows.columns))
    if found is None:
        raise ValueError(
            f"{rows.source} has the columns {', '.join(rows.columns)}; none is called {', '.join(guesses)}: "
            f"say which one it is with {option}."
        )
    return found


def take_examples(rows: Rows, names: Names) -> tuple[Examples, int]:
    """The rows that lack nothing, and how many do.

    Raises:
        ValueError: No row is left.
    """
    used = [rows.columns[name] for name in (names.text, names.pair, names.label) if name is not None]
    whole = [i for i, cells in enumerate(zip(*used)) if all(cell.strip() for cell in cells)]
    if not whole:
        raise ValueError(f"{rows.source}: no row has {' and '.join(n for n in vars(names).values() if n)}.")
    texts, pairs, labels = (None if name is None else rows.columns[name] for name in vars(names).values())
    labels = None if labels is None else [label.strip() for label in labels]
    return Examples(texts, pairs, labels).take(whole), len(rows) - len(whole)


def find_classes(labels: list[str], source: str) -> list[str] | None:
    """The classes in the data, sorted, numbers by value; None if the labels are numbers and not all are whole.

    Raises:
        ValueError: There is one class, or so many that the column can't be a label.
    """
    numbers = [as_number(label) for label in labels]
    numeric = all(number is not None for number in numbers)
    if numeric and any(number != math.floor(number) for number in numbers):
        return None
    counts = Counter(labels)
    if len(counts) == 1:
        raise ValueError(f"{source}: all {len(labels)} rows have the label {labels[0]!r}; two classes are needed.")
    if len(counts) > MOST_CLASSES or (len(counts) > 20 and len(counts) > len(labels) / 2):
        raise ValueError(
            f"{source}: {len(labels)} rows have {len(counts)} different labels, such as {labels[0]!r:.60}; "
            "that is no set of classes: name the right column with --label."
        )
    return sorted(counts, key=float if numeric else None)


def as_number(label: str) -> float | None:
    """The finite number that a label is, or None."""
    try:
        value = float(label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def hold_out(labels: list[str], classes: list[str] | None, seed: int) -> tuple[list[int], list[int]]:
    """Row numbers to train on and to hold out: a seeded tenth, of each class where there are classes; one row at least.

    Raises:
        ValueError: There are too few rows to hold any out.
    """
    if len(labels) < 2 or (classes is not None and len(labels) <= len(classes)):
        raise ValueError(f"{len(labels)} rows are too few to hold some out: pass held-out rows with --dev.")
    rng = np.random.Generator(np.random.Philox(key=[seed, 0]))
    order = rng.permutation(len(labels)).tolist()
    groups = [order] if classes is None else [[i for i in order if labels[i] == name] for name in classes]
    held = [i for group in groups for i in group[: round(len(group) * HELD_OUT)]]
    held = held or max(groups, key=len)[:1]
    return sorted(set(order) - set(held)), sorted(held)
