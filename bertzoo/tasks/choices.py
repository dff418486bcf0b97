"""What a caller passes as multiple choice becomes columns of questions, choices and answers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bertzoo.tasks.tables import as_list, column_names, first_of, needed

FIRST = ("question", "prompt", "context", "sent1", "startphrase", "text")
NO_ANSWERS = "there are no answers: pass y, or a table with a column called label."
NUMBERED = ("choice{}", "ending{}", "answer{}", "option{}")


class Choices(NamedTuple):
    """Questions, the choices for each, as many for all, and raw answers where there are any."""

    questions: list[str]
    choices: list[list[str]]
    answers: Any


def read_choices(x, y=None) -> Choices:
    """Takes rows apart.

    Args:
        x: A pair (questions, choices), where choices are lists of texts; a list of such rows (question, choices); or a
            table (frame, `datasets.Dataset`, dict of columns) with a question (question, prompt, context, sent1, text),
            and choices, as lists in `choices` or `endings`, or in columns choice0, choice1 … (ending0 …).
        y: For each row the number of the right choice, from 0, or its text; the table's `label` or `answer` where None.

    Raises:
        TypeError: A question or choice is no string.
        ValueError: Rows differ in their number of choices, or a column is missing.
    """
    if isinstance(x, Choices):
        return x
    names = column_names(x)
    if names is not None:
        questions, choices, y = _from_table(x, names, y)
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
        if len(row) != len(choices[0]) or len(row) < 2:
            raise ValueError(
                f"question {number} has {len(row)} choices and question 0 {len(choices[0])}; all need as many."
            )
    return Choices(questions, [list(row) for row in choices], y)


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
        if isinstance(place, (bool, str)) or not isinstance(place, (int, np.integer)) or not 0 <= place < len(row):
            raise ValueError(f"y[{number}] is {answer!r:.60}; it must be a choice, or from 0 to {len(row) - 1}.")
        ids.append(int(place))
    return np.array(ids, dtype="int32")


def find_columns(names: list) -> dict[str, str | None]:
    """Which columns of a table are taken: `question`, `choices` where they are lists in one, and `label`."""
    listed, label = first_of(("choices", "endings"), names), first_of(("label", "answer", "labels"), names)
    return {"question": needed(FIRST, names), "choices": listed, "label": label}


def _from_table(table, names: list, y):
    question, listed, target = find_columns(names).values()
    questions = as_list(table[question])
    if y is None and target is not None:
        y = as_list(table[target])
    if listed is not None:
        return questions, as_list(table[listed]), y
    pattern = next((p for p in NUMBERED if p.format(0) in names and p.format(1) in names), None)
    if pattern is None:
        raise ValueError(f"the table has the columns {names}; choices must be called choices, or choice0 ….")
    numbered = []
    while pattern.format(len(numbered)) in names:
        numbered.append(as_list(table[pattern.format(len(numbered))]))
    return questions, [list(row) for row in zip(*numbered)], y
