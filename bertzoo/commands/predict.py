"""`bertzoo predict`: labels for texts."""

import csv
import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bertzoo.commands.labelled import Examples
from bertzoo.commands.places import check_file, write_whole
from bertzoo.commands.running import start
from bertzoo.commands.screen import show_table
from bertzoo.commands.texts import TEXTS_HELP, given_texts


def predict(
    model: Annotated[str, typer.Argument(help="A fine-tuned classifier: a directory, or hf://owner/name.")],
    texts: Annotated[list[str] | None, typer.Argument(help=TEXTS_HELP)] = None,
    file: Annotated[Path | None, typer.Option(help="Texts in a .csv, .tsv, .jsonl or .txt file.")] = None,
    out: Annotated[Path | None, typer.Option(help="A .csv file to write instead of showing the answers.")] = None,
    text: Annotated[str | None, typer.Option(help="Column of the texts, if its name does not tell.")] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second texts, for pairs.")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
) -> None:
    """Label texts with a fine-tuned model. Answers come as a table on a terminal, as csv in a pipe or a file."""
    if out is not None:
        check_file(out, (".csv",))
    examples = given_texts(texts or [], file, text, pair)

    classifier = start().TextClassifier.from_preset(model, verbose=False)
    lacking = classifier.load_report.new
    if lacking:
        raise ValueError(f"{model} is no trained classifier: it lacks {', '.join(lacking)}. `bertzoo fit` makes one.")
    columns, rows = tabulate(examples, classifier.classify(examples.x, batch_size=batch_size))
    if out is not None:
        write_whole(out, _as_csv(columns, rows).encode())
        print(f"{len(rows)} rows in {out}")
    elif sys.stdout.isatty():
        show_table(columns, rows, numbers=columns[-1:])
    else:
        sys.stdout.write(_as_csv(columns, rows))


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
