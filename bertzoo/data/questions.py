"""What a caller passes as questions becomes columns of questions, contexts and answers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bertzoo.text.inputs import as_pairs


class Questions(NamedTuple):
    """Questions, the texts that they are about, and for each the answers, (text, first character); none where the text
    holds no answer, and None for the column where nobody gave answers."""

    questions: list[str]
    contexts: list[str]
    answers: list[list[tuple[str, int]]] | None


FIELDS = ("question", "context", "answers")


def find_columns(names: list) -> dict[str, str | None]:
    """Which columns of a table are taken: those that are called question, context and answers."""
    return {name: name for name in FIELDS if name in names}


def read_questions(x, contexts=None) -> Questions:
    """Takes records apart.

    Args:
        x: A question, or a list of them, with `contexts`; or records, dicts with `question`, `context` and, to learn
            from, `answers`; or a table of these columns (frame, `datasets.Dataset`, dict). Answers are those of SQuAD's
            json, a list of {"text", "answer_start"}, or of `datasets`, {"text": […], "answer_start": […]}; a missing
            `answer_start` is the text's first occurrence.
        contexts: A text, or a list of as many as there are questions.

    Raises:
        TypeError: A row is no string.
        ValueError: A record lacks a field, or an answer does not stand in the context where it says.
    """
    if isinstance(x, Questions):
        return x
    if contexts is not None:
        return Questions(*as_pairs(x, contexts), None)
    if isinstance(x, tuple) and len(x) == 2:
        return Questions(*as_pairs(*x), None)
    records = _records(x)
    for number, record in enumerate(records):
        missing = [name for name in ("question", "context") if name not in record]
        if missing:
            raise ValueError(
                f"record {number} has no {missing[0]!r}; it has {', '.join(map(str, record)) or 'nothing'}."
            )
    columns = as_pairs([record["question"] for record in records], [record["context"] for record in records])
    if not any("answers" in record for record in records):
        return Questions(*columns, None)
    found = []
    for number, record in enumerate(records):
        if "answers" not in record:
            raise ValueError(f"record {number} has no 'answers', and others have; an empty list means no answer.")
        found.append(_answers(record["answers"], record["context"], number))
    return Questions(*columns, found)


def _records(x) -> list[Mapping[str, Any]]:
    if isinstance(x, Mapping) and not isinstance(x.get("question"), str):
        x = [dict(zip(x, row)) for row in zip(*x.values())]
    elif isinstance(x, Mapping):
        x = [x]
    elif hasattr(x, "to_dict") and hasattr(x, "columns"):
        x = x.to_dict("records")
    rows = list(x)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"record {number} must be a dict with question and context; it is {row!r:.60}.")
    return rows


def _answers(answers, context: str, number: int) -> list[tuple[str, int]]:
    if answers is None:
        return []
    if isinstance(answers, Mapping) and "text" in answers and not isinstance(answers["text"], str):
        texts, starts = list(answers["text"]), list(answers.get("answer_start", []))
        answers = [{"text": t, "answer_start": s} for t, s in zip(texts, starts or [None] * len(texts))]
    found = []
    for answer in [answers] if isinstance(answers, str) or not hasattr(answers, "__iter__") else answers:
        answer = {"text": answer} if isinstance(answer, str) else answer
        if not isinstance(answer, Mapping) or "text" not in answer:
            raise ValueError(
                f"record {number}: answers must be texts, or dicts with text and answer_start. "
                f"Received: {answer!r:.60}."
            )
        text, start = str(answer["text"]), answer.get("answer_start")
        start = context.find(text) if start is None else int(start)
        if not text or start < 0 or context[start : start + len(text)] != text:
            instead = context[max(start, 0) :][: len(text)]
            where = "anywhere" if start < 0 else f"at character {start}, where it has {instead!r:.60}"
            raise ValueError(f"record {number}: the context does not have the answer {text!r:.60} {where}.")
        found.append((text, start))
    return found
