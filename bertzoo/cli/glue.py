"""`bertzoo glue`: a model on the tasks of the GLUE benchmark (Wang et al. 2019), each with its own metrics."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bertzoo.cli.app import PRESET_HELP
from bertzoo.cli.console import percent, show_table
from bertzoo.cli.dataset import Examples, Parts
from bertzoo.cli.paths import check_file
from bertzoo.cli.trials import Log, Settings, mean_and_spread

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


def glue(
    model: Annotated[str, typer.Argument(help=f"The model to start from. {PRESET_HELP}")],
    data: Annotated[
        Path, typer.Option(envvar="BERTZOO_DATA", help="Folder with a folder a task: sst2/train.tsv, sst2/dev.tsv …")
    ],
    out: Annotated[Path, typer.Option(help="A .json file of finished runs, which are not done again.")] = Path(
        "glue.json"
    ),
    tasks: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(TASKS),
    split: Annotated[str, typer.Option(help="Rows to score on: dev, or test where its labels are there.")] = "dev",
    rows: Annotated[int | None, typer.Option(min=2, help="Train on as many rows, drawn at random.")] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
    learning_rate: Annotated[float | None, typer.Option(help="Peak rate; by the model's size if left out.")] = None,
    max_length: Annotated[int | None, typer.Option(min=3, help="Longest input in tokens.")] = 128,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each task, with the seeds 0, 1 …")] = 1,
) -> None:
    """Fine-tune a model on each task of GLUE that is in a folder, and show the scores on held-out rows and their mean.
    Finished runs are kept: the same command goes on where it was stopped."""
    wanted = tasks.split(",")
    unknown = [name for name in wanted if name not in TASKS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of GLUE's tasks; they are {', '.join(TASKS)}.")
    check_file(out, (".json",))
    log, found = Log(out), {}
    for name in wanted:
        parts = _read(data, name, split, rows)
        if parts is None:
            continue
        records = []
        for seed in range(seeds):
            records.append(log.run(parts, Settings(model, batch_size, learning_rate, epochs, seed, max_length)))
            shown = ", ".join(f"{metric} {percent(records[-1]['scores'][metric])}" for metric in TASKS[name])
            print(f"{name}, seed {seed}: {shown}, {records[-1]['seconds']:.0f} s", flush=True)
        found[name] = (len(parts.train), [record["scores"] for record in records])
    if not found:
        raise ValueError(f"{data} holds none of the tasks {', '.join(wanted)}.")
    _show(found, split)


def _read(folder: Path, name: str, split: str, rows: int | None) -> Parts | None:
    """The two parts of a task; None, with a sentence, where they are not there."""
    from bertzoo.data import load

    if not (folder / name).is_dir():
        print(f"{name}: left out, {folder} has no folder of this name")
        return None
    train, held = (_examples(load(name, part, folder)) for part in ("train", split))
    classes = None if name == "stsb" else sorted(set(train.labels))
    unknown = sorted(set(held.labels) - set(classes or held.labels))
    if unknown:
        raise ValueError(f"{folder / name}: {split} has the label {unknown[0]!r}, which the rows to learn from lack.")
    if rows is not None and rows < len(train):
        train = train.take(np.random.Generator(np.random.Philox(key=[0, 0])).permutation(len(train))[:rows])
    return Parts(train, held, classes)


def _examples(table) -> Examples:
    from bertzoo.data.parsing import parse_inputs
    from bertzoo.data.schemas import TEXTS

    read = parse_inputs(table, schema=TEXTS)
    if read.targets is None:
        raise ValueError(f"the table has no labels; its columns are {', '.join(table)}.")
    return Examples(read["text"], read.get("second text"), [str(target) for target in read.targets])


def _show(found: dict[str, tuple[int, list[dict]]], split: str) -> None:
    rows, totals = [], []
    for name, (count, scores) in found.items():
        for metric in TASKS[name]:
            rows.append([name, metric, *mean_and_spread([score[metric] for score in scores]), str(count)])
        totals.append(np.mean([score[metric] for score in scores for metric in TASKS[name]]))
    rows.append(["mean", f"{len(found)} of {len(TASKS)} tasks", f"{100 * np.mean(totals):.1f}", "", ""])
    numbers = ["%", "spread", "rows to learn from"]
    show_table(["task", "metric", *numbers], rows, title=f"GLUE, {split}", numbers=numbers)
