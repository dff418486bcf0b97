"""`bertzoo quickstart`: fine-tunes a first model in about a minute, without a network."""

import time
from pathlib import Path
from typing import Annotated

import typer

from bertzoo.cli.app import Preset, format_percent, import_bertzoo, print_table, training_verbosity
from bertzoo.cli.paths import check_preset_output_directory

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
    print("Loading Keras …", flush=True)
    bz = import_bertzoo()
    from bertzoo.data import load_reviews

    train, test = load_reviews("train"), load_reviews("test")
    model = bz.TextClassifier.from_preset(preset, labels=["negative", "positive"], new_head=True, verbose=False)
    _introduce(preset, model, train, test)
    before = _ask(model, test[0])
    most = format_percent(max(test[1].count(label) for label in model.labels) / len(test[1]))
    print(f"   Right on the held-out reviews: {_share_right(before, test[1])}. Majority baseline: {most}.\n")
    print(f"3. Training, {EPOCHS} times through the {len(train[0])} reviews.", flush=True)
    begun = time.perf_counter()
    model.compile(bz.AdamW(RATE))
    model.fit(*train, epochs=EPOCHS, batch_size=BATCH_SIZE, verbose=training_verbosity())
    seconds = time.perf_counter() - begun
    after = _ask(model, test[0])
    print(
        f"   Right on the held-out reviews: {_share_right(after, test[1])}; it was {_share_right(before, test[1])}. "
        f"Training took {seconds:.0f} s.\n"
    )
    asked = zip(NEW_SENTENCES, before[len(test[0]) :], after[len(test[0]) :])
    rows = [[text, *_answer(old), *_answer(new)] for text, old, new in asked]
    print_table(["new sentence", "before", "", "after", " "], rows, title="4. Asking it", numeric_columns=["", " "])
    model.save_to_preset(out)
    _say_how_to_use(out)


def _introduce(preset: str, model, train: tuple, test: tuple) -> None:
    import keras

    print(
        f"\n1. The task: is a review negative or positive? {len(train[0])} labelled reviews are there to learn from, "
        f"{len(test[0])} others to judge by.\n"
        f"   One of them: “{train[0][0]}” is {train[1][0]}.\n\n"
        f"2. The model: {preset}, {model.count_params() / 1e6:.1f} million numbers that were trained on English text, "
        f"on {keras.backend.backend()}.\n"
        f"   It has seen no label yet: its last layer is random.",
        flush=True,
    )


def _ask(model, test_texts: list[str]) -> list[dict]:
    # In one call, since each shape of a batch is compiled.
    return model.classify([*test_texts, *NEW_SENTENCES], batch_size=BATCH_SIZE)


def _share_right(answers: list[dict], labels: list[str]) -> str:
    return format_percent(sum(answer["label"] == label for answer, label in zip(answers, labels)) / len(labels))


def _answer(answer: dict) -> list[str]:
    return [answer["label"], f"{100 * answer['score']:.0f} %"]


def _say_how_to_use(out: Path) -> None:
    print(
        f"\n5. The model is saved in {out}, in Hugging Face's form. On the command line:\n"
        f'       bertzoo predict {out} "What a lovely day"\n'
        f"   In Python:\n"
        f"       import bertzoo as bz\n"
        f'       classifier = bz.TextClassifier.from_preset("{out}")\n'
        f'       classifier.classify(["What a lovely day"])\n'
        f"   Next, with texts and labels of your own:  bertzoo fit table.csv --out my_model\n"
        f"   How it works inside, in notebooks:        bertzoo course my_course"
    )
