"""`bertzoo fit`: a model for each task; here a text classifier from a table."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bertzoo.cli.app import PRESET_HELP
from bertzoo.cli.console import percent, show_table
from bertzoo.cli.dataset import Parts, as_number, find_classes, find_columns, hold_out, take_examples
from bertzoo.cli.fit_tasks import Run, fit_answers, fit_choices, fit_words, kind_of_task
from bertzoo.cli.paths import check_preset_directory
from bertzoo.cli.trials import Settings, fine_tune
from bertzoo.data.table_files import read_rows

MOST_SHOWN = 10  # classes that a confusion matrix fits the screen with


def fit(
    file: Annotated[
        Path,
        typer.Argument(
            help="What to learn from: labelled texts or multiple choice (.csv, .tsv, .jsonl, .parquet), tagged words "
            "(.conll, .conllu), questions with answers (SQuAD's .json); each also as .gz."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Directory to save the model in.")],
    preset: Annotated[str, typer.Option(help=f"The model to start from. {PRESET_HELP}")] = "bert_mini_en",
    text: Annotated[str | None, typer.Option(help="Column of the texts, if its name does not tell.")] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second texts, for pairs.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the labels, if its name does not tell.")] = None,
    dev: Annotated[Path | None, typer.Option(help="Held-out rows; a tenth of FILE if left out.")] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
    learning_rate: Annotated[float | None, typer.Option(help="Peak rate; by the model's size if left out.")] = None,
    max_length: Annotated[int | None, typer.Option(min=3, help="Longest input in tokens; the rest is cut off.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Fine-tune a model on labelled texts, tagged words, questions with answers, or multiple choice, by the kind of the
    file. Labels that are numbers like 0.5 make a regression."""
    check_preset_directory(out)
    if learning_rate is not None and not learning_rate > 0:
        raise ValueError(f"--learning-rate must be above 0; it is {learning_rate}.")
    others = {"words": fit_words, "answers": fit_answers, "choices": fit_choices}
    kind = kind_of_task(file)
    if kind in others:
        if text or pair or label:
            raise ValueError(f"--text, --pair and --label are for tables of labelled texts; {file} is none.")
        run = Run(file, out, preset, dev, epochs, batch_size, learning_rate, max_length, seed)
        others[kind](run)
        return
    parts = read_parts(file, dev, (text, pair, label), seed)
    describe_parts(parts)
    model = fine_tune(parts, Settings(preset, batch_size, learning_rate, epochs, seed, max_length), shown=True)
    answers = model.classify(parts.held.x, batch_size=batch_size)
    if parts.classes:
        show_classes(parts.held.labels, [answer["label"] for answer in answers], parts.classes)
    else:
        show_numbers(parts.targets(parts.held), np.array([answer["value"] for answer in answers]))
    model.save_to_preset(out)
    print(f'Saved in {out}. Use it: bertzoo predict {out} "a text"')


def read_parts(file: Path, dev: Path | None, given: tuple, seed: int) -> Parts:
    """What to learn from, and what is held out: the rows of `dev`, else a tenth.

    Args:
        file, dev: The tables.
        given: Columns of texts, second texts and labels as the user named them, or None.
        seed: Of the draw of held-out rows.
    """
    rows = read_rows(file)
    names = find_columns(rows, *given, needs_label=True)
    examples, left_out = take_examples(rows, names)
    print(f"{file}: text in {names.text}{f' and {names.pair}' if names.pair else ''}, label in {names.label}")
    if left_out:
        print(f"{file}: {left_out} rows that lack one of these are left out")
    classes = find_classes(examples.labels, str(file))
    if dev is None:
        return Parts(*(examples.take(part) for part in hold_out(examples.labels, classes, seed)), classes)
    held_rows = read_rows(dev)
    held_names = find_columns(held_rows, names.text, names.pair, names.label, needs_label=True)
    held, left_out = take_examples(held_rows, held_names)
    if left_out:
        print(f"{dev}: {left_out} rows that lack one of these are left out")
    _check_labels(held.labels, classes, dev, file)
    return Parts(examples, held, classes)


def _check_labels(labels: list[str], classes: list[str] | None, dev: Path, file: Path) -> None:
    if classes is None:
        wrong = [label for label in labels if as_number(label) is None]
        if wrong:
            raise ValueError(f"{dev} has the label {wrong[0]!r}; the labels of {file} are numbers.")
        return
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        raise ValueError(f"{dev} has the label {unknown[0]!r}; those of {file} are {', '.join(classes[:20])}.")


def describe_parts(parts: Parts) -> None:
    """Prints how many rows and classes there are."""
    held, classes = parts.held, parts.classes
    print(f"{len(parts.train)} rows to learn from, {len(held)} held out; ", end="")
    if classes is None:
        print("the labels are numbers: regression")
    else:
        shares = sorted(((held.labels.count(name) / len(held), name) for name in classes), reverse=True)
        print(f"{len(classes)} classes; always saying {shares[0][1]!r} would be right in {percent(shares[0][0])}")


def show_classes(truth: list[str], predicted: list[str], classes: list[str]) -> None:
    """Prints accuracy, precision, recall and F1 by class, and for few classes the confusion matrix."""
    from bertzoo.metrics.classes import confusion_matrix, precision_recall_f1

    counts = confusion_matrix(truth, predicted, classes)
    scores = precision_recall_f1(counts)
    rows = [[name, *(f"{value:.3f}" for value in scores[i]), str(counts[i].sum())] for i, name in enumerate(classes)]
    right = int(np.diag(counts).sum())
    title = f"Held-out rows: {right} of {len(truth)} right, accuracy {percent(right / len(truth))}"
    figures = ["precision", "recall", "F1", "rows"]
    show_table(["class", *figures], rows, title=title, numbers=figures)
    if len(classes) <= MOST_SHOWN:
        columns = [f"said {name}" for name in classes]
        rows = [[f"is {name}", *map(str, counts[i])] for i, name in enumerate(classes)]
        show_table(["", *columns], rows, title="Confusion", numbers=columns)


def show_numbers(truth: np.ndarray, predicted: np.ndarray) -> None:
    """Prints the error and the correlations."""
    from bertzoo.metrics.correlation import pearson, spearman

    figures = {
        "mean absolute error": float(np.abs(truth - predicted).mean()),
        "Pearson correlation": pearson(truth, predicted) if len(truth) > 1 else float("nan"),
        "Spearman correlation": spearman(truth, predicted) if len(truth) > 1 else float("nan"),
    }
    rows = [[name, f"{value:.3f}"] for name, value in figures.items()]
    show_table(["held-out rows", "value"], rows, numbers=["value"])
