"""`bertzoo predict`: labels for texts, entities in them, answers from them, words for their masks."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bertzoo.checkpoints.files import find_preset_directory
from bertzoo.cli.app import PairColumn, PositiveInt, TextColumn, Texts, TextsFile, import_bertzoo, print_table
from bertzoo.cli.dataset import ColumnNames, read_texts_or_file
from bertzoo.cli.paths import check_output_file, write_atomically
from bertzoo.data.datasets import load_squad
from bertzoo.data.files import format_suffix, read_string_table
from bertzoo.data.parsing import Examples, parse_inputs, require_column
from bertzoo.data.schemas import CHOICES, QUESTIONS

Table = tuple[list[str], list[list[str]]]


def predict(
    model: Annotated[str, typer.Argument(help="A trained model of any task: a bundled name, a directory, or hf://….")],
    texts: Texts = None,
    file: TextsFile = None,
    out: Annotated[Path | None, typer.Option(help="A .csv file to write instead of showing the answers.")] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    top_k: Annotated[int, typer.Option(min=1, help="Words for each [MASK], by a masked language model.")] = 5,
    batch_size: PositiveInt = 32,
) -> None:
    """Label texts, find entities in them, answer questions from them, choose, or fill in [MASK], by what the model was
    trained for. Answers are shown as a table on a terminal, as csv in a pipe or a file. Questions are read from a file
    with the columns question and context; multiple choice with question, choice0, choice1 and so on."""
    if out is not None:
        check_output_file(out, (".csv",))
    task = _task_of(model)
    if task in ("QuestionAnswerer", "MultipleChoice"):
        if texts or file is None:
            raise ValueError(f"{model} is a {task}: give a table of questions with --file.")
        examples = _read_questions(file, task)
    else:
        examples = read_texts_or_file(texts or [], file, ColumnNames(text, pair))
    network = _load(task, model)
    columns, rows = _TABLES[task](network, examples, batch_size, top_k)
    if out is not None:
        write_atomically(out, _as_csv(columns, rows).encode())
        print(f"{len(rows)} rows in {out}")
    elif sys.stdout.isatty():
        print_table(columns, rows, numeric_columns=columns[-1:])
    else:
        sys.stdout.write(_as_csv(columns, rows))


_TASKS = {
    "ForTokenClassification": "TokenClassifier",
    "ForQuestionAnswering": "QuestionAnswerer",
    "ForMultipleChoice": "MultipleChoice",
    "ForMaskedLM": "MaskedLM",
}


def _task_of(model: str) -> str:
    """The task by the architecture in the model's config.json; a text classifier if there is none."""
    path = find_preset_directory(model) / "config.json"
    names = json.loads(path.read_text(encoding="utf-8")).get("architectures") or [] if path.is_file() else []
    return next((task for ending, task in _TASKS.items() if str(names[:1]).endswith(f"{ending}']")), "TextClassifier")


def _load(task: str, model: str):
    network = getattr(import_bertzoo(), task).from_preset(model, verbose=False)
    missing = network.load_report.new
    if missing:
        kind = "classifier" if task == "TextClassifier" else task
        raise ValueError(f"{model} is not a trained {kind}: it lacks {', '.join(missing)}. `bertzoo fit` makes one.")
    return network


def _read_questions(file: Path, task: str) -> Examples:
    """Questions with contexts or with choices, without their answers."""
    if task == "MultipleChoice":
        return parse_inputs(read_string_table(file).columns, schema=CHOICES).without_targets()
    if format_suffix(file) == ".json":
        return parse_inputs(load_squad(file), schema=QUESTIONS).without_targets()
    columns = read_string_table(file).columns
    names = [require_column([name], list(columns)) for name in ("question", "context")]
    return parse_inputs(tuple(columns[name] for name in names), schema=QUESTIONS)


def _label_table(network, examples: Examples, batch_size: int, top_k: int) -> Table:
    """A text a row, with its label and probability, its labels, or its value."""
    inputs = {"text": examples["text"]}
    if examples.get("second text") is not None:
        inputs["pair"] = examples["second text"]
    cells = [_cells(answer) for answer in network.classify(examples, batch_size=batch_size)]
    rows = [[*texts, *row.values()] for *texts, row in zip(*inputs.values(), cells)]
    return [*inputs, *cells[0]], rows


def _cells(answer: dict[str, Any]) -> dict[str, str]:
    if "label" in answer:
        return {"label": answer["label"], "probability": f"{answer['score']:.4f}"}
    if "scores" in answer:
        return {"labels": " ".join(answer["labels"]), **_rounded(answer["scores"])}
    return _rounded(answer.get("values") or answer)


def _rounded(numbers: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.4f}" for name, value in numbers.items()}


def _entity_table(network, examples: Examples, batch_size: int, top_k: int) -> Table:
    """An entity a row, with the number of its text, from 1."""
    rows = [
        [str(number), e["text"], e["label"], str(e["start"]), str(e["end"]), f"{e['score']:.4f}"]
        for number, entities in enumerate(network.tag(examples["text"], batch_size=batch_size), start=1)
        for e in entities
    ]
    return ["text", "entity", "label", "start", "end", "probability"], rows


def _answer_table(network, examples: Examples, batch_size: int, top_k: int) -> Table:
    """An answer a row."""
    rows = [
        [question, answer["text"], str(answer["start"]), str(answer["end"]), f"{answer['score']:.4f}"]
        for question, answer in zip(examples["question"], network.answer(examples, batch_size=batch_size))
    ]
    return ["question", "answer", "start", "end", "probability"], rows


def _choice_table(network, examples: Examples, batch_size: int, top_k: int) -> Table:
    """A choice a row."""
    answers = network.choose(examples, batch_size=batch_size)
    rows = [[q, a["choice"], str(a["index"]), f"{a['score']:.4f}"] for q, a in zip(examples["question"], answers)]
    return ["question", "choice", "number", "probability"], rows


def _mask_table(network, examples: Examples, batch_size: int, top_k: int) -> Table:
    """A guess a row, with the numbers of its text and of its mask, from 1."""
    rows = []
    for number, masks in enumerate(network.fill_mask(examples["text"], top_k=top_k, batch_size=batch_size), start=1):
        masks = [masks] if isinstance(masks[0], dict) else masks
        for mask, guesses in enumerate(masks, start=1):
            rows += [[str(number), str(mask), g["token"], g["text"], f"{g['score']:.4f}"] for g in guesses]
    return ["text", "mask", "word", "filled in", "probability"], rows


_TABLES = {
    "TextClassifier": _label_table,
    "TokenClassifier": _entity_table,
    "QuestionAnswerer": _answer_table,
    "MultipleChoice": _choice_table,
    "MaskedLM": _mask_table,
}


def _as_csv(columns: list[str], rows: list[list[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([columns, *rows])
    return buffer.getvalue()
