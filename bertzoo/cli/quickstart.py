"""`bertzoo quickstart`: fine-tunes a first model in about a minute, without a network."""

import time
from pathlib import Path
from typing import Annotated

import typer

from bertzoo.cli.app import Preset, format_percent, import_bertzoo, print_table, training_verbosity
from bertzoo.cli.paths import check_directory_is_new, check_preset_output_directory
from bertzoo.data import load_reviews

EPOCHS = 5
RATE = 3e-4
# Divides the 600 reviews: a smaller last batch would be another shape to compile.
BATCH_SIZE = 40

NEW_SENTENCES = [
    "I would buy this again without a second thought.",
    "The soup was cold and the waiter rude.",
    "A film that stays with you for days.",
    "It broke after two weeks, and nobody answers my mails.",
    "Not bad at all!",
]


def quickstart(
    out: Annotated[Path, typer.Option(help="Directory to save the model in.")] = Path("my_first_model"),
    preset: Preset = "bert_mini_en",
) -> None:
    """Train a first model in about a minute: a classifier of reviews. No network is needed."""
    check_preset_output_directory(out)
    check_directory_is_new(out)
    print("Loading Keras …", flush=True)
    bz = import_bertzoo()

    train, test = load_reviews("train"), load_reviews("test")
    model = bz.TextClassifier.from_preset(preset, labels=["negative", "positive"], new_head=True, verbose=False)
    _introduce(preset, model, train, test)
    before = _ask(model, test[0])
    most = format_percent(max(test[1].count(label) for label in model.labels) / len(test[1]))
    print(
        f"   Accuracy on the held-out reviews: {_accuracy(before, test[1])}. Always giving the same label: {most}.\n\n"
        f"3. Training: {EPOCHS} epochs, each once through the {len(train[0])} reviews.",
        flush=True,
    )
    begun = time.perf_counter()
    model.compile(bz.AdamW(RATE))
    model.fit(*train, epochs=EPOCHS, batch_size=BATCH_SIZE, verbose=training_verbosity())
    seconds = time.perf_counter() - begun
    after = _ask(model, test[0])
    print(
        f"   Accuracy on the held-out reviews: {_accuracy(after, test[1])}; before training: "
        f"{_accuracy(before, test[1])}. Training took {seconds:.0f} s.\n"
    )
    asked = zip(NEW_SENTENCES, before[len(test[0]) :], after[len(test[0]) :])
    rows = [[text, *_answer(old), *_answer(new)] for text, old, new in asked]
    columns = ["sentence", "before", "score", "after", "score "]
    title = "4. New sentences, classified before and after training (score: the probability of the label)"
    print_table(columns, rows, title=title, numeric_columns=["score", "score "])
    model.save_to_preset(out)
    _say_how_to_use(out)


def _introduce(preset: str, model, train: tuple, test: tuple) -> None:
    import keras

    print(
        f"\n1. The task: is a review negative or positive? {len(train[0])} labelled reviews to learn from, "
        f"{len(test[0])} held out to test with.\n"
        f"   One of them: “{train[0][0]}” is {train[1][0]}.\n\n"
        f"2. The model: {preset}, {model.count_params() / 1e6:.1f} million parameters, pre-trained on English text. "
        f"Backend: {keras.backend.backend()}.\n"
        f"   It has seen no label yet: the layer that classifies is new, with random weights.",
        flush=True,
    )


def _ask(model, test_texts: list[str]) -> list[dict]:
    # In one call, since each shape of a batch is compiled.
    return model.classify([*test_texts, *NEW_SENTENCES], batch_size=BATCH_SIZE)


def _accuracy(answers: list[dict], labels: list[str]) -> str:
    return format_percent(sum(answer["label"] == label for answer, label in zip(answers, labels)) / len(labels))


def _answer(answer: dict) -> list[str]:
    return [answer["label"], f"{100 * answer['score']:.0f} %"]


def _say_how_to_use(out: Path) -> None:
    print(
        f"\n5. The model is saved in {out}, as a Hugging Face checkpoint. Use it on the command line:\n"
        f'       bertzoo predict {out} "What a lovely day"\n'
        f"   or in Python:\n"
        f"       import bertzoo as bz\n"
        f'       classifier = bz.TextClassifier.from_preset("{out}")\n'
        f'       classifier.classify(["What a lovely day"])\n'
        f"   Train on your own texts and labels:       bertzoo fit table.csv --out my_model\n"
        f"   Learn how it works, in notebooks:         bertzoo course my_course"
    )
