"""Rows of `bertzoo predict` for entities, answers and choices."""

from pathlib import Path

from bertzoo.data.loaders import load_squad
from bertzoo.data.table_files import kind_of, read_rows

Table = tuple[list[str], list[list[str]]]


def entity_rows(network, texts: list[str], batch_size: int) -> Table:
    """An entity a row, with the number of its text, from 1."""
    rows = []
    for number, entities in enumerate(network.tag(texts, batch_size=batch_size), start=1):
        for e in entities:
            rows.append([str(number), e["text"], e["label"], str(e["start"]), str(e["end"]), f"{e['score']:.4f}"])
    return ["text", "entity", "label", "start", "end", "probability"], rows


def question_rows(network, file: Path, batch_size: int) -> Table:
    """An answer a row."""
    if kind_of(file) == ".json":
        records = load_squad(file)
    else:
        found = _columns(file, ("question", "context"))
        records = [{"question": q, "context": c} for q, c in zip(found["question"], found["context"])]
    asked = [{"question": record["question"], "context": record["context"]} for record in records]
    answers = network.answer(asked, batch_size=batch_size)
    rows = [
        [record["question"], answer["text"], str(answer["start"]), str(answer["end"]), f"{answer['score']:.4f}"]
        for record, answer in zip(asked, answers)
    ]
    return ["question", "answer", "start", "end", "probability"], rows


def choice_rows(network, file: Path, batch_size: int) -> Table:
    """A choice a row."""
    found = _columns(file, ())
    found = {name: cells for name, cells in found.items() if name not in ("label", "answer")}
    answers = network.choose(found, batch_size=batch_size)
    questions = network.data.parse(found)["question"]
    rows = [[q, a["choice"], str(a["index"]), f"{a['score']:.4f}"] for q, a in zip(questions, answers)]
    return ["question", "choice", "number", "probability"], rows


def _columns(file: Path, needed: tuple[str, ...]) -> dict[str, list[str]]:
    columns = {name.lower(): cells for name, cells in read_rows(file).columns.items()}
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(f"{file} has no column {missing[0]}; it has {', '.join(columns)}.")
    return columns
