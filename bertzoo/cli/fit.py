"""`bertzoo fit`: fine-tunes a model for the task that a file holds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from bertzoo.cli.app import (
    PRESET_HELP,
    HeldOut,
    LabelColumn,
    MaxLength,
    PairColumn,
    PositiveInt,
    TextColumn,
    format_percent,
    import_bertzoo,
    training_verbosity,
)
from bertzoo.cli.dataset import ColumnNames, Splits, read_schema_and_splits
from bertzoo.cli.paths import check_preset_output_directory
from bertzoo.cli.reports import (
    print_classification_report,
    print_multiple_choice_report,
    print_question_answering_report,
    print_word_tagging_report,
)
from bertzoo.data.schemas import CHOICES, QUESTIONS, TEXTS, WORDS
from bertzoo.text.tags import detect_tag_scheme

EPOCHS = 3


_PRESET = f"The model to start from: bert_mini_en, or sentence_mini_en with --few-shot. {PRESET_HELP}"
_Preset = Annotated[str | None, typer.Option(help=_PRESET, show_default=False)]


def fit(
    file: Annotated[
        Path,
        typer.Argument(
            help="Labelled texts or multiple choice (.csv, .tsv, .jsonl, .parquet), tagged words (.conll, "
            ".conllu), questions with answers (SQuAD's .json); each also as .gz."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Directory to save the model in.")],
    preset: _Preset = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    dev: HeldOut = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="3, or 1 with --few-shot.", show_default=False)] = None,
    batch_size: PositiveInt = 32,
    learning_rate: Annotated[float | None, typer.Option(help="Peak rate; by the model's size if left out.")] = None,
    max_length: MaxLength = None,
    few_shot: Annotated[
        bool,
        typer.Option("--few-shot", help="For 8 or 16 texts a class: train a sentence encoder on pairs, then a head."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Fine-tune a model on labelled texts, tagged words, questions with answers, or multiple choice, by the kind of the
    file. Labels that are numbers like 0.5 make a regression."""
    check_preset_output_directory(out)
    if learning_rate is not None and not learning_rate > 0:
        raise ValueError(f"--learning-rate must be above 0. Received: {learning_rate}.")
    schema, splits = read_schema_and_splits(file, dev, seed, ColumnNames(text, pair, label))
    kind = KINDS[schema.roles]
    if few_shot and schema != TEXTS:
        raise ValueError(f"--few-shot is for tables of labelled texts. Received: {file}.")
    options, description = kind.describe(splits)
    print(f"{len(splits.train)} {kind.unit} to learn from, {len(splits.validation)} held out; {description}")
    bz = import_bertzoo()
    bz.set_seed(seed)
    training: dict[str, Any] = {"batch_size": batch_size, "epochs": epochs or (1 if few_shot else EPOCHS)}
    if learning_rate is not None:
        training["learning_rate"] = learning_rate
    if few_shot:
        encoder = bz.SentenceEncoder.from_preset(preset or "sentence_mini_en", max_length=max_length)
        model = encoder.fit_classifier(splits.train, None, **options, **training, verbose=training_verbosity())
    else:
        task = getattr(bz, kind.task)
        model = task.from_preset(preset or "bert_mini_en", max_length=max_length, new_head=True, **options)
        _fine_tune(bz, model, splits, **training)
    kind.report(model, splits.validation, batch_size)
    model.save_to_preset(out)
    print(f"Saved in {out}. Use it: bertzoo predict {out} {kind.usage}")


def _fine_tune(
    bz: ModuleType, model: Any, splits: Splits, epochs: int, batch_size: int, learning_rate: float | None = None
) -> None:
    model.compile(None if learning_rate is None else bz.AdamW(learning_rate))
    training = {"epochs": epochs, "batch_size": batch_size, "verbose": training_verbosity()}
    model.fit(splits.train, validation_data=splits.validation, **training)


def choose_classifier_options(splits: Splits) -> tuple[dict[str, Any], str]:
    """The arguments of `TextClassifier.from_preset`, and a description of the labels."""
    if splits.classes is None:
        return {"labels": 1, "problem_type": "regression"}, "the labels are numbers: regression"
    labels = list(splits.validation.targets)
    share = max(labels.count(name) for name in splits.classes) / len(labels)
    options = {"labels": splits.classes, "problem_type": "single_label_classification"}
    return options, f"{len(splits.classes)} classes; majority baseline: {format_percent(share)}"


def _describe_words(splits: Splits) -> tuple[dict[str, Any], str]:
    seen, held_out = ({tag for tags in part.targets for tag in tags} for part in (splits.train, splits.validation))
    if held_out - seen:
        raise ValueError(
            f"the held-out sentences have the tag {min(held_out - seen)!r}, which those to learn from lack."
        )
    labels = sorted(seen)
    scheme = detect_tag_scheme(labels)
    return {"labels": labels}, f"{len(labels)} tags" + (f" ({scheme})" if scheme else "")


def _describe_questions(splits: Splits) -> tuple[dict[str, Any], str]:
    unanswered = sum(not answers for answers in splits.train.targets)
    return {}, f"{unanswered} without answer" if unanswered else "each with an answer"


def _describe_choices(splits: Splits) -> tuple[dict[str, Any], str]:
    return {}, f"{len(splits.train['choices'][0])} choices each"


@dataclass(frozen=True)
class _Kind:
    """How a task is trained and reported.

    describe: Splits -> arguments of `from_preset` and a description. report: (model, examples, batch size) -> prints.
    """

    task: str
    unit: str
    describe: Callable[[Splits], tuple[dict[str, Any], str]]
    report: Callable[..., None]
    usage: str


# By the roles of a schema.
KINDS = {
    TEXTS.roles: _Kind("TextClassifier", "rows", choose_classifier_options, print_classification_report, '"a text"'),
    WORDS.roles: _Kind("TokenClassifier", "sentences", _describe_words, print_word_tagging_report, '"a text"'),
    QUESTIONS.roles: _Kind(
        "QuestionAnswerer", "questions", _describe_questions, print_question_answering_report, "--file questions.jsonl"
    ),
    CHOICES.roles: _Kind(
        "MultipleChoice", "questions", _describe_choices, print_multiple_choice_report, "--file questions.csv"
    ),
}
