"""Classifiers from few labelled texts, beside setfit and plain fine-tuning: accuracy, and seconds of training.

    python tests/benchmarks/run.py few_shot MODEL --data DIRECTORY --task sst2 --examples 8 16 --peers-python PYTHON

MODEL is a sentence encoder. Each draw takes so many examples of each class from the training set. The contestants are
processes of their own that train on it in turn, on a PyTorch of two threads, and wait meanwhile; loading the model and
the test are not timed. Beside other programs, the
seconds that the processor worked say more than the clock. `squad` is questions, of which of four articles.

bertzoo      `SentenceEncoder.fit_classifier`, as it comes
setfit       its Trainer, as it comes
fine-tuning  `TextClassifier.fit`, 20 epochs in batches of 8
"""

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from benchmarks.common import RESULT, add_data_argument, command_line, read_data, use_data

CONTESTANTS = ("bertzoo", "setfit", "fine-tuning")
ARTICLES = 4

Rows = list[tuple[str, int]]


def sst2() -> tuple[Rows, Rows]:
    train, test = (
        [line.split("\t") for line in read_data("sst2", name).splitlines()[1:]] for name in ("train.tsv.gz", "test.tsv")
    )
    return [(text, int(label)) for text, label in train], [(text, int(label)) for text, label in test]


def squad() -> tuple[Rows, Rows]:
    """The questions of the articles with the most of them: every second one to learn from, the others to test."""
    articles = json.loads(read_data("squad", "dev.json"))["data"]
    questions = {
        article["title"]: [question["question"] for part in article["paragraphs"] for question in part["qas"]]
        for article in articles
    }
    titles = [title for title, _ in Counter({t: len(q) for t, q in questions.items()}).most_common(ARTICLES)]
    rows = [(text, label) for label, title in enumerate(titles) for text in questions[title]]
    return rows[::2], rows[1::2]


TASKS = {"sst2": sst2, "squad": squad}


def draw(rows: Rows, examples: int, seed: int) -> Rows:
    """So many examples of each class."""
    rng, labels = np.random.default_rng(seed), np.array([label for _, label in rows])
    chosen = [rng.choice(np.flatnonzero(labels == label), examples, replace=False) for label in np.unique(labels)]
    return [rows[i] for i in np.concatenate(chosen)]


class Contestant:
    """A process that trains and tests on what it is sent."""

    def __init__(self, name: str, model: str, python: str):
        program = Path(__file__).with_name("few_shot_contestants.py")
        command = [python, str(program), name, model]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __call__(self, **job) -> tuple[float, float, float]:
        """Accuracy in percent; seconds of training by the clock, and those that the processor worked."""
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(RESULT):
                clock, work, predicted = json.loads(line.removeprefix(RESULT))
                return 100 * float(np.mean(np.array(predicted) == job["test_labels"])), clock, work
        raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}.")


def main(arguments: list[str]) -> None:
    parser = command_line("few_shot", __doc__)
    parser.add_argument("model")
    parser.add_argument("--task", choices=TASKS, default="sst2")
    parser.add_argument("--examples", type=int, nargs="+", default=[8, 16], help="of each class")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--who", nargs="+", choices=CONTESTANTS, default=CONTESTANTS)
    parser.add_argument("--peers-python", default=sys.executable, help="Python with setfit")
    add_data_argument(parser)
    options = parser.parse_args(arguments)
    use_data(options)
    train, test = TASKS[options.task]()
    texts, labels = map(list, zip(*test))
    with ExitStack() as stack:
        contestants = {
            who: Contestant(who, options.model, options.peers_python if who == "setfit" else sys.executable)
            for who in options.who
        }
        for contestant in contestants.values():
            stack.callback(contestant.process.kill)
        for examples in options.examples:
            results = {who: [] for who in contestants}
            for seed in range(options.draws):
                rows = draw(train, examples, seed)
                job = {"texts": [text for text, _ in rows], "labels": [label for _, label in rows], "seed": seed}
                for who, contestant in contestants.items():
                    results[who].append(contestant(**job, test_texts=texts, test_labels=labels))
                    accuracy, clock, work = results[who][-1]
                    print(f"  draw {seed}, {who}: {accuracy:.1f} %, {clock:.1f} s, {work:.1f} s of work", flush=True)
            print(f"{options.task}, {examples} examples of each class, {options.draws} draws, {len(test)} test texts")
            for who, rows in results.items():
                report(who, np.array(rows), np.array(results["bertzoo"]) if "bertzoo" in results else None)


def report(who: str, rows: np.ndarray, ours: np.ndarray | None) -> None:
    """Prints a contestant's mean, and where it differs from bertzoo on the same draws."""

    def with_error(values: np.ndarray) -> str:
        return f"{values.mean():.1f} ± {values.std(ddof=1) / np.sqrt(len(values)):.1f}"

    _, clock, work = np.median(rows, axis=0)
    print(f"{who}: accuracy {with_error(rows[:, 0])} %, median {clock:.2f} s, {work:.2f} s of work", end="")
    if ours is not None and who != "bertzoo":
        clock, work = (np.median(rows[:, i] / ours[:, i]) for i in (1, 2))
        print(f"; bertzoo differs by {with_error(ours[:, 0] - rows[:, 0])} points", end="")
        print(f" and is {clock:.1f} times as fast, {work:.1f} by work", end="")
    print(flush=True)
