"""What a caller passes as multiple choice becomes columns of questions, choices and answers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertzoo.data.table_columns import as_list, column_names, find_column, require_column

# What is read before the choice, in tables: a passage, situation or question, and a question or beginning that stands
# right before each choice (SWAG's sent2, the question about a passage).
FIRST = (
    *("context", "article", "passage", "ctx", "sent1", "premise", "goal"),
    *("question", "question_stem", "prompt", "startphrase", "text"),
)
STEMS = ("sent2", "question")
LISTED = ("choices", "endings", "options")
NUMBERED = ("choice{}", "ending{}", "answer{}", "option{}", "sol{}")
ANSWERS = ("label", "answer", "labels", "answerKey")
NO_ANSWERS = "there are no answers: pass y, or a table with a column called label."


class Choices(NamedTuple):
    """What is read before the choices of each row, what stands right before each of them (None where nothing does), the
    choices, and raw answers where there are any."""

    questions: list[str]
    stems: list[str] | None
    choices: list[list[str]]
    answers: Any

    def seconds(self) -> list[list[str]]:
        """The texts that are read together with the questions: choices behind their stems."""
        if self.stems is None:
            return self.choices
        return [[f"{stem} {text}".strip() for text in row] for stem, row in zip(self.stems, self.choices)]


def read_choices(x, y=None) -> Choices:
    """Takes rows apart.

    Args:
        x: A pair (questions, choices), where choices are lists of texts, two or more a row; a list of such rows
            (question, choices); or a table (frame, `datasets.Dataset`, dict of columns), see `find_columns`.
        y: For each row the index of the right choice, from 0, its letter from "A", or its text; the table's `label`,
            `answer` or `answerKey` where None.

    Raises:
        TypeError: A question or choice is no string.
        ValueError: A row has fewer than two choices, or a column is missing.
    """
    if isinstance(x, Choices):
        return x
    names, stems = column_names(x), None
    if names is not None:
        questions, stems, choices, y = _from_table(x, names, y)
    elif isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], str):
        questions, choices = list(x[0]), list(x[1])
    else:
        rows = [x] if isinstance(x, tuple) else list(x)
        for number, row in enumerate(rows):
            if not isinstance(row, (tuple, list)) or len(row) != 2:
                raise TypeError(f"x[{number}] must be a question with its choices (q, [a, b]). Received: {row!r:.60}.")
        questions, choices = [row[0] for row in rows], [row[1] for row in rows]
    if len(questions) != len(choices):
        raise ValueError(f"there are {len(questions)} questions and {len(choices)} rows of choices.")
    choices = [row.tolist() if hasattr(row, "tolist") else row for row in choices]
    for number, (question, row) in enumerate(zip(questions, choices)):
        if not isinstance(question, str):
            raise TypeError(f"question {number} must be a string; it is {question!r:.60}.")
        if isinstance(row, str) or not isinstance(row, Sequence) or not all(isinstance(text, str) for text in row):
            raise TypeError(f"the choices of question {number} must be a list of strings; they are {row!r:.60}.")
        if len(row) < 2:
            raise ValueError(f"question {number} must have two or more choices. Received: {list(row)!r:.60}.")
    return Choices(questions, stems, [list(row) for row in choices], y)


def answer_ids(columns: Choices) -> np.ndarray:
    """The number of each row's right choice, int32 (n,).

    Raises:
        ValueError: There are no answers, or one is none of the choices.
    """
    if columns.answers is None:
        raise ValueError(NO_ANSWERS)
    answers = columns.answers.tolist() if hasattr(columns.answers, "tolist") else list(columns.answers)
    if len(answers) != len(columns.choices):
        raise ValueError(f"there are {len(columns.choices)} questions and {len(answers)} answers.")
    ids = []
    for number, (answer, row) in enumerate(zip(answers, columns.choices)):
        place = row.index(answer) if answer in row else answer
        if isinstance(place, str) and place.isdigit():
            place = int(place)
        elif isinstance(place, str) and len(place) == 1 and "A" <= place <= "Z":
            place = ord(place) - ord("A")
        if isinstance(place, (bool, str)) or not isinstance(place, (int, np.integer)) or not 0 <= place < len(row):
            raise ValueError(
                f"y[{number}] is {answer!r:.60}; it must be a choice, its letter, or from 0 to {len(row) - 1}."
            )
        ids.append(int(place))
    return np.array(ids, dtype="int32")


def find_columns(names: list) -> dict[str, str | None]:
    """Which columns of a table are taken, None where there is none.

    `question`: the first of FIRST. `before each choice`: SWAG's sent2, or the question where a passage comes first.
    `choices`: lists of texts, or dicts with the lists `text` and `label`, in one column; or `choice 1` and so on, in
    columns that are numbered from 0 or 1. `label`: the right choice.

    Raises:
        ValueError: There is no question, or there are no choices.
    """
    first, listed = require_column(FIRST, names), find_column(LISTED, names)
    numbered = [] if listed is not None else numbered_columns(names)
    if listed is None and not numbered:
        raise ValueError(f"the table has the columns {names}; choices must be called choices, or choice0 ….")
    return {
        "question": first,
        "before each choice": find_column([name for name in STEMS if name != first], names),
        "choices": listed,
        **{f"choice {i + 1}": name for i, name in enumerate(numbered)},
        "label": find_column(ANSWERS, names),
    }


def numbered_columns(names: list) -> list[str]:
    """The columns of choices that are numbered from 0 or 1 on."""
    for pattern in NUMBERED:
        for begin in (0, 1):
            found = []
            while pattern.format(begin + len(found)) in names:
                found.append(pattern.format(begin + len(found)))
            if len(found) > 1:
                return found
    return []


def _from_table(table, names: list, y):
    question, stem, listed, *numbered, target = find_columns(names).values()
    questions = as_list(table[question])
    stems = None if stem is None else as_list(table[stem])
    answers = as_list(table[target]) if y is None and target is not None else y
    if listed is None:
        choices = [list(row) for row in zip(*(as_list(table[name]) for name in numbered))]
        return questions, stems, choices, answers
    choices = as_list(table[listed])
    if choices and isinstance(choices[0], Mapping):  # ARC's
        if y is None and answers is not None:
            answers = [row["label"].index(a) if a in row["label"] else a for a, row in zip(answers, choices)]
        choices = [list(row["text"]) for row in choices]
    return questions, stems, choices, answers
