"""`bertzoo predict`: labels for texts, entities in them, answers from them."""

import csv
import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bertzoo.cli.app import start
from bertzoo.cli.console import show_table
from bertzoo.cli.dataset import Examples
from bertzoo.cli.paths import check_file, write_whole
from bertzoo.cli.predict_tasks import choice_rows, entity_rows, question_rows
from bertzoo.cli.texts import TEXTS_HELP, given_texts


def predict(
    model: Annotated[str, typer.Argument(help="A fine-tuned model of any task: a directory, or hf://owner/name.")],
    texts: Annotated[list[str] | None, typer.Argument(help=TEXTS_HELP)] = None,
    file: Annotated[Path | None, typer.Option(help="Texts in a .csv, .tsv, .jsonl or .txt file.")] = None,
    out: Annotated[Path | None, typer.Option(help="A .csv file to write instead of showing the answers.")] = None,
    text: Annotated[str | None, typer.Option(help="Column of the texts, if its name does not tell.")] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second texts, for pairs.")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
) -> None:
    """Label texts, find entities in them, answer questions from them or choose, by what the model was trained for.
    Answers come as a table on a terminal, as csv in a pipe or a file. Questions are given as a file with the columns
    question and context; multiple choice with question, choice0, choice1 and so on."""
    if out is not None:
        check_file(out, (".csv",))
    task = _task_of(model)
    if task in ("QuestionAnswerer", "MultipleChoice"):
        if texts or file is None:
            raise ValueError(f"{model} is a {task}: give a table of questions with --file.")
        network = _load(task, model)
        columns, rows = (question_rows if task == "QuestionAnswerer" else choice_rows)(network, file, batch_size)
    else:
        examples = given_texts(texts or [], file, text, pair)
        network = _load(task, model)
        if task == "TokenClassifier":
            columns, rows = entity_rows(network, examples.texts, batch_size)
        else:
            columns, rows = tabulate(examples, network.classify(examples.x, batch_size=batch_size))
    if out is not None:
        write_whole(out, _as_csv(columns, rows).encode())
        print(f"{len(rows)} rows in {out}")
    elif sys.stdout.isatty():
        show_table(columns, rows, numbers=columns[-1:])
    else:
        sys.stdout.write(_as_csv(columns, rows))


_TASKS = {
    "ForTokenClassification": "TokenClassifier",
    "ForQuestionAnswering": "QuestionAnswerer",
    "ForMultipleChoice": "MultipleChoice",
}


def _task_of(model: str) -> str:
    """The task by the architecture that the model's config.json names; a text classifier where it names none."""
    import json

    from bertzoo.checkpoints.files import resolve

    path = resolve(model) / "config.json"
    names = json.loads(path.read_text(encoding="utf-8")).get("architectures") or [] if path.is_file() else []
    return next((task for ending, task in _TASKS.items() if str(names[:1]).endswith(f"{ending}']")), "TextClassifier")


def _load(task: str, model: str):
    network = getattr(start(), task).from_preset(model, verbose=False)
    lacking = network.load_report.new
    if lacking:
        kind = "classifier" if task == "TextClassifier" else task
        raise ValueError(f"{model} is no trained {kind}: it lacks {', '.join(lacking)}. `bertzoo fit` makes one.")
    return network


def tabulate(examples: Examples, answers: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Column names and rows of what `classify` gave, beside the texts."""
    inputs = [examples.texts] if examples.pairs is None else [examples.texts, examples.pairs]
    names = ["text", "pair"][: len(inputs)]
    found = [_cells(answer) for answer in answers]
    return [*names, *found[0]], [[*cells, *answer.values()] for *cells, answer in zip(*inputs, found)]


def _cells(answer: dict[str, Any]) -> dict[str, str]:
    if "label" in answer:
        return {"label": answer["label"], "probability": f"{answer['score']:.4f}"}
    if "scores" in answer:
        return {"labels": " ".join(answer["labels"]), **_rounded(answer["scores"])}
    return _rounded(answer.get("values") or answer)


def _rounded(numbers: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.4f}" for name, value in numbers.items()}


def _as_csv(columns: list[str], rows: list[list[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([columns, *rows])
    return buffer.getvalue()
