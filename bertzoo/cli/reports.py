"""How good a model is on validation examples, as tables, for each task that `bertzoo fit` trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertzoo.cli.app import format_percent, print_table
from bertzoo.data.parsing import Examples
from bertzoo.metrics.entities import entity_report, entity_scores
from bertzoo.metrics.scores import confusion_matrix, pearson, precision_recall_f1, spearman
from bertzoo.metrics.squad import squad_scores

if TYPE_CHECKING:
    from bertzoo.tasks.multiple_choice import MultipleChoice
    from bertzoo.tasks.question_answerer import QuestionAnswerer
    from bertzoo.tasks.text_classifier import TextClassifier
    from bertzoo.tasks.token_classifier import TokenClassifier

MOST_SHOWN = 10  # classes that a confusion matrix fits the screen with


def print_classification_report(model: TextClassifier, examples: Examples, batch_size: int) -> None:
    """Precision, recall and F1 by class, and the confusion matrix; for a regression, error and correlations."""
    answers = model.classify(examples, batch_size=batch_size)
    if "value" in answers[0]:
        _print_regression_report(np.asarray(examples.targets), np.array([answer["value"] for answer in answers]))
        return
    truth, predicted = examples.targets, [answer["label"] for answer in answers]
    right = sum(a == b for a, b in zip(truth, predicted))
    title = f"Held-out rows: {right} of {len(truth)} right, accuracy {format_percent(right / len(truth))}"
    counts = _show_classes(truth, predicted, model.labels, title, "class", "rows")
    if len(model.labels) <= MOST_SHOWN:
        columns = [f"predicted {name}" for name in model.labels]
        rows = [[f"true {name}", *map(str, counts[i])] for i, name in enumerate(model.labels)]
        print_table(["", *columns], rows, title="Confusion", numeric_columns=columns)


def _print_regression_report(truth: np.ndarray, predicted: np.ndarray) -> None:
    """Prints the mean absolute error and the correlations."""
    values = {"mean absolute error": float(np.abs(truth - predicted).mean())}
    for name, correlation in (("Pearson", pearson), ("Spearman", spearman)):
        values[f"{name} correlation"] = correlation(truth, predicted) if len(truth) > 1 else float("nan")
    rows = [[name, f"{value:.3f}"] for name, value in values.items()]
    print_table(["held-out rows", "value"], rows, numeric_columns=["value"])


def print_word_tagging_report(model: TokenClassifier, examples: Examples, batch_size: int) -> None:
    """Precision, recall and F1 by type of entity, or of each tag if they mark no entities."""
    truth, predicted = examples.targets, model.tag_words(examples, batch_size=batch_size)
    if not model.scheme:
        pairs = [(a, b) for tags, others in zip(truth, predicted) for a, b in zip(tags, others)]
        right = format_percent(np.mean([a == b for a, b in pairs]))
        classes = sorted({tag for pair in pairs for tag in pair})
        title = f"Held-out sentences: words right {right}"
        _show_classes([a for a, _ in pairs], [b for _, b in pairs], classes, title, "tag", "number")
        return
    scores, report = entity_scores(truth, predicted), entity_report(truth, predicted)
    rows = [
        [kind, *(f"{row[name]:.3f}" for name in ("precision", "recall", "f1")), str(row["support"])]
        for kind, row in report.items()
    ]
    entity_f1, right = format_percent(scores["f1"]), format_percent(scores["accuracy"])
    title = f"Held-out sentences: entity F1 {entity_f1}, words right {right}"
    numbers = ["precision", "recall", "F1", "number"]
    print_table(["entity", *numbers], rows, title=title, numeric_columns=numbers)


def _show_classes(
    truth: Sequence[str], predicted: Sequence[str], classes: list[str], title: str, what: str, count: str
) -> np.ndarray:
    """Prints precision, recall and F1 by class; returns the confusion matrix."""
    counts = confusion_matrix(truth, predicted, classes)
    scores = precision_recall_f1(counts)
    numbers = ["precision", "recall", "F1", count]
    rows = [[name, *(f"{value:.3f}" for value in scores[i]), str(counts[i].sum())] for i, name in enumerate(classes)]
    print_table([what, *numbers], rows, title=title, numeric_columns=numbers)
    return counts


def print_question_answering_report(model: QuestionAnswerer, examples: Examples, batch_size: int) -> None:
    """Exact match and F1 as SQuAD defines them, after choosing the threshold below which there is no answer."""
    truth = [[text for text, _ in answers] for answers in examples.targets]
    if not all(truth):
        print(f"No answer is given above a threshold of {model.fit_threshold(examples, batch_size=batch_size):.2f}")
    answers = [answer["text"] for answer in model.answer(examples, batch_size=batch_size)]
    scores = squad_scores(answers, truth, "1.1" if all(truth) else "2.0")
    rows = [[name.replace("_", " "), f"{value:.1f}"] for name, value in scores.items()]
    print_table(["held-out questions", "%"], rows, numeric_columns=["%"])


def print_multiple_choice_report(model: MultipleChoice, examples: Examples, batch_size: int) -> None:
    """The accuracy."""
    chosen = [answer["index"] for answer in model.choose(examples, batch_size=batch_size)]
    right = int((np.array(chosen) == model.data.encode_targets(examples)).sum())
    columns = ["held-out questions", "right", "accuracy"]
    print_table(columns, [[str(len(chosen)), str(right), format_percent(right / len(chosen))]])
