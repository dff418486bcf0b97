"""`bertzoo fit` for tagged words, questions with answers, and multiple choice."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertzoo.cli.app import start
from bertzoo.cli.console import percent, progress, show_table
from bertzoo.data.table_files import kind_of, read_rows

HELD_OUT = 0.1


@dataclass(frozen=True)
class Run:
    """What the user asked for."""

    file: Path
    out: Path
    preset: str
    dev: Path | None
    epochs: int
    batch_size: int
    learning_rate: float | None
    max_length: int | None
    seed: int


def kind_of_task(file: Path) -> str:
    """ "words", "answers", "choices" or "texts", by the file's kind, and its columns."""
    from bertzoo.data.schemas import numbered_columns

    kind = kind_of(file)
    if kind in (".conll", ".conllu"):
        return "words"
    if kind == ".json":
        return "answers"
    return "choices" if numbered_columns(list(read_rows(file).columns)) else "texts"


def fit_words(run: Run) -> None:
    """A token classifier from sentences with a tag a word."""
    from bertzoo.data.loaders import load_conll
    from bertzoo.text.tags import scheme_of

    train, held = _parts(run, load_conll)
    labels = sorted({tag for tags in train["tags"] for tag in tags})
    unknown = sorted({tag for tags in held["tags"] for tag in tags} - set(labels))
    if unknown:
        raise ValueError(f"the held-out sentences have the tag {unknown[0]!r}, which those to learn from lack.")
    scheme = scheme_of(labels)
    _say(
        len(train["tokens"]),
        len(held["tokens"]),
        "sentences",
        f"{len(labels)} tags" + (f" ({scheme})" if scheme else ""),
    )
    model = _model(run, "TokenClassifier", labels=labels)
    _fit(run, model, train["tokens"], train["tags"], (held["tokens"], held["tags"]))
    show_tags(held["tags"], model.tag_words(held["tokens"], batch_size=run.batch_size), scheme)
    _save(run, model, '"a text"')


def fit_answers(run: Run) -> None:
    """A question answerer from a SQuAD file."""
    from bertzoo.data.loaders import load_squad
    from bertzoo.metrics.squad import squad_scores

    train, held = _parts(run, load_squad)
    none = sum(not record["answers"] for record in train)
    _say(len(train), len(held), "questions", f"{none} without answer" if none else "each with an answer")
    model = _model(run, "QuestionAnswerer")
    _fit(run, model, train, None, held)
    if none:
        print(f"No answer is given above a threshold of {model.fit_threshold(held, batch_size=run.batch_size):.2f}")
    found = model.answer(held, batch_size=run.batch_size)
    truth = [[answer["text"] for answer in record["answers"]] for record in held]
    version = "1.1" if all(truth) else "2.0"
    scores = squad_scores([answer["text"] for answer in found], truth, version)
    rows = [[name.replace("_", " "), f"{value:.1f}"] for name, value in scores.items()]
    show_table(["held-out questions", "%"], rows, numbers=["%"])
    _save(run, model, "--file questions.jsonl")


def fit_choices(run: Run) -> None:
    """A model of multiple choice from a table with a question, choice0, choice1 … and label."""
    from bertzoo.data.parsing import parse_inputs
    from bertzoo.data.schemas import CHOICES
    from bertzoo.data.targets import answer_ids

    train, held = _parts(run, lambda path: {name.lower(): cells for name, cells in read_rows(path).columns.items()})
    questions = parse_inputs(held, schema=CHOICES)
    _say(
        len(parse_inputs(train, schema=CHOICES)),
        len(questions),
        "questions",
        f"{len(questions['choices'][0])} choices each",
    )
    model = _model(run, "MultipleChoice")
    _fit(run, model, train, None, held)
    said = np.array([answer["index"] for answer in model.choose(questions, batch_size=run.batch_size)])
    right = int((said == answer_ids(questions)).sum())
    show_table(["held-out questions", "right", "accuracy"], [[str(len(said)), str(right), percent(right / len(said))]])
    _save(run, model, "--file questions.csv")


def show_tags(truth: list[list[str]], predicted: list[list[str]], scheme: str | None) -> None:
    """Prints precision, recall and F1 by type of entity, or of each tag where they mark none."""
    from bertzoo.metrics.classes import confusion_matrix, precision_recall_f1
    from bertzoo.metrics.entities import entity_report, entity_scores

    figures = ["precision", "recall", "F1", "number"]
    if scheme:
        whole = entity_scores(truth, predicted)
        rows = [
            [kind, *(f"{row[name]:.3f}" for name in ("precision", "recall", "f1")), str(row["support"])]
            for kind, row in entity_report(truth, predicted).items()
        ]
        title = f"Held-out sentences: entity F1 {percent(whole['f1'])}, words right {percent(whole['accuracy'])}"
        show_table(["entity", *figures], rows, title=title, numbers=figures)
        return
    pairs = [(a, b) for tags, others in zip(truth, predicted) for a, b in zip(tags, others)]
    classes = sorted({tag for pair in pairs for tag in pair})
    counts = confusion_matrix(*zip(*pairs), classes)
    scores = precision_recall_f1(counts)
    rows = [[name, *(f"{v:.3f}" for v in scores[i]), str(counts[i].sum())] for i, name in enumerate(classes)]
    title = f"Held-out sentences: words right {percent(np.trace(counts) / counts.sum())}"
    show_table(["tag", *figures], rows, title=title, numbers=figures)


def _parts(run: Run, read: Callable):
    """What to learn from and what is held out: the dev file, or a seeded tenth."""
    whole = read(run.file)
    if run.dev is not None:
        return whole, read(run.dev)
    count = len(whole) if isinstance(whole, list) else len(next(iter(whole.values())))
    if count < 2:
        raise ValueError(f"{count} rows are too few to hold some out: pass held-out rows with --dev.")
    order = np.random.Generator(np.random.Philox(key=[run.seed, 0])).permutation(count)
    held = max(1, round(count * HELD_OUT))

    def take(rows):
        if isinstance(whole, list):
            return [whole[i] for i in rows]
        return {name: [column[i] for i in rows] for name, column in whole.items()}

    return take(sorted(order[held:])), take(sorted(order[:held]))


def _say(train: int, held: int, what: str, more: str) -> None:
    print(f"{train} {what} to learn from, {held} held out; {more}")


def _model(run: Run, name: str, **options):
    bz = start()
    bz.set_seed(run.seed)
    model = getattr(bz, name).from_preset(run.preset, max_length=run.max_length, new_head=True, **options)
    model.compile(None if run.learning_rate is None else bz.AdamW(run.learning_rate))
    return model


def _fit(run: Run, model, x, y, held) -> None:
    model.fit(x, y, validation_data=held, epochs=run.epochs, batch_size=run.batch_size, verbose=progress())


def _save(run: Run, model, arguments: str) -> None:
    model.save_to_preset(run.out)
    print(f"Saved in {run.out}. Use it: bertzoo predict {run.out} {arguments}")
