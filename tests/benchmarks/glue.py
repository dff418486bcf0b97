"""A model fine-tuned on the tasks of GLUE (Wang et al. 2019) that are in a directory, each scored with its own metrics.

    python tests/benchmarks/run.py glue MODEL --data DIRECTORY [--out glue.json] [--tasks cola sst2 …] [--split dev]
        [--examples N] [--epochs 3] [--batch-size 32] [--learning-rate R] [--max-length 128] [--seeds 1]

DIRECTORY holds a folder for each task: sst2/train.tsv, sst2/dev.tsv and so on. Finished runs are kept in the file of
`--out`: the same command resumes where it was stopped.
"""

import os
from pathlib import Path

import numpy as np
from benchmarks.common import add_data_argument, command_line, use_data

from bertzoo.cli.app import format_percent, print_table
from bertzoo.cli.dataset import Splits
from bertzoo.cli.trials import RunLog, RunSettings, format_mean_and_std
from bertzoo.data.parsing import Examples, parse_inputs
from bertzoo.data.schemas import TEXTS

# Metrics as the benchmark's: where there are two, the task's score is their mean.
TASKS = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("f1", "accuracy"),
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
}


def main(arguments: list[str]) -> str | None:
    parser = command_line("glue", __doc__)
    parser.add_argument("model")
    add_data_argument(parser)
    parser.add_argument("--out", type=Path, default=Path("glue.json"), help="a .json file of finished runs")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--split", default="dev", help="rows to score on: dev, or test if its labels are there")
    parser.add_argument("--examples", type=int, help="training examples, sampled; all if left out")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, help="peak rate; by the model's size if left out")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=1, help="runs of each task, with the seeds 0, 1 …")
    options = parser.parse_args(arguments)
    use_data(options)
    log, scores = RunLog(options.out), {}
    for name in options.tasks:
        splits = read(name, options.split, options.examples)
        if splits is None:
            continue
        records = []
        for seed in range(options.seeds):
            settings = options.batch_size, options.learning_rate, options.epochs, seed, options.max_length
            records.append(log.get_or_run(splits, RunSettings(options.model, *settings)))
            shown = ", ".join(f"{metric} {format_percent(records[-1]['scores'][metric])}" for metric in TASKS[name])
            print(f"{name}, seed {seed}: {shown}, {records[-1]['seconds']:.0f} s", flush=True)
        scores[name] = (len(splits.train), [record["scores"] for record in records])
    if not scores:
        return f"{options.data} holds none of the tasks {', '.join(options.tasks)}."
    _show(scores, options.split)
    return None


def read(name: str, split: str, count: int | None) -> Splits | None:
    """The examples of a task; None, with a message, if they are not there."""
    folder = Path(os.environ["BERTZOO_DATA"])
    if not (folder / name).is_dir():
        print(f"{name}: left out, {folder} has no folder of this name")
        return None
    train, validation = (_examples(name, part, folder) for part in ("train", split))
    classes = None if name == "stsb" else sorted(set(train.targets))
    unknown = sorted(set(validation.targets) - set(classes or validation.targets))
    if unknown:
        raise ValueError(f"{folder / name}: {split} has the label {unknown[0]!r}, which the training rows lack.")
    if count is not None and count < len(train):
        train = train.select(np.random.Generator(np.random.Philox(key=[0, 0])).permutation(len(train))[:count])
    return Splits(train, validation, classes)


def _examples(name: str, part: str, folder: Path) -> Examples:
    from bertzoo.data import load

    table = load(name, part, folder)
    examples = parse_inputs(table, schema=TEXTS)
    if examples.targets is None:
        raise ValueError(f"the table must have labels. Received: the columns {', '.join(table)}.")
    targets = examples.targets if name == "stsb" else [str(target) for target in examples.targets]
    return Examples(examples.columns, targets)


def _show(results: dict[str, tuple[int, list[dict]]], split: str) -> None:
    rows, totals = [], []
    for name, (count, scores) in results.items():
        for metric in TASKS[name]:
            rows.append([name, metric, *format_mean_and_std([score[metric] for score in scores]), str(count)])
        totals.append(np.mean([score[metric] for score in scores for metric in TASKS[name]]))
    rows.append(["mean", f"{len(results)} of {len(TASKS)} tasks", f"{100 * np.mean(totals):.1f}", "", ""])
    numbers = ["%", "spread", "rows to learn from"]
    print_table(["task", "metric", *numbers], rows, title=f"GLUE, {split}", numeric_columns=numbers)
