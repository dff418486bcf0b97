"""`bertzoo grid`: a grid search over the hyperparameters of fine-tuning, by default that of the BERT paper."""

from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bertzoo.checkpoints.saving import check_writable
from bertzoo.cli.app import HeldOut, LabelColumn, MaxLength, PairColumn, Preset, TextColumn, format_percent, print_table
from bertzoo.cli.dataset import ColumnNames, Splits, read_schema_and_splits
from bertzoo.cli.fit import choose_classifier_options
from bertzoo.cli.trials import RunLog, RunSettings, fine_tune_classifier, format_mean_and_std
from bertzoo.data.schemas import TEXTS

LOG, BEST = "grid.json", "best"


def grid(
    file: Annotated[Path, typer.Argument(help="Labelled texts, as for `bertzoo fit`.")],
    out: Annotated[Path, typer.Option(help=f"Directory for {LOG} and the model {BEST}/.")],
    preset: Preset = "bert_mini_en",
    dev: HeldOut = None,
    batch_sizes: Annotated[str, typer.Option(help="Separated by commas.")] = "16,32",
    learning_rates: Annotated[str, typer.Option(help="Peak rates, separated by commas.")] = "2e-5,3e-5,5e-5",
    epochs: Annotated[str, typer.Option(help="Separated by commas.")] = "2,3,4",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell, with the seeds 0, 1 …")] = 1,
    metric: Annotated[str | None, typer.Option(help="accuracy, f1 or matthews; pearson or spearman.")] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    max_length: MaxLength = None,
) -> None:
    """Fine-tune with every combination of batch size, learning rate and epochs, show the scores on held-out rows, and
    keep the model of the best. The default grid is that of Devlin et al. 2019, section A.3; small models need higher
    rates. Finished runs are kept: the same command resumes an interrupted grid."""
    cells = list(product(_numbers(batch_sizes, int), _numbers(learning_rates, float), _numbers(epochs, int)))
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not (out / LOG).is_file()):
        raise ValueError(f"{out} must be empty or the directory of a grid: name another.")
    check_writable(out / BEST)
    schema, splits = read_schema_and_splits(file, dev, 0, ColumnNames(text, pair, label))
    if schema != TEXTS:
        raise ValueError(f"grid needs labelled texts. Received: {file}.")
    print(
        f"{len(splits.train)} rows to learn from, {len(splits.validation)} held out; "
        f"{choose_classifier_options(splits)[1]}"
    )
    choices = ("accuracy", "f1", "matthews") if splits.classes else ("spearman", "pearson")
    metric = metric or choices[0]
    if metric not in choices:
        raise ValueError(f"--metric must be one of {', '.join(choices)} for these labels. Received: {metric!r}.")
    log, found = RunLog(out / LOG), {}
    print(f"{len(cells)} cells, {len(cells) * seeds} runs; logged in {log.path}")
    for cell in cells:
        found[cell] = _scores(log, splits, preset, cell, seeds, metric, max_length)
    best = max(cells, key=lambda cell: np.nan_to_num(np.mean(found[cell]), nan=-np.inf))
    _show(found, best, metric)
    seed = int(np.nan_to_num(found[best], nan=-np.inf).argmax())
    fine_tune_classifier(splits, _settings(preset, best, seed, max_length)).save_to_preset(out / BEST)
    print(
        f'The best, trained again with seed {seed}, is in {out / BEST}. Use it: bertzoo predict {out / BEST} "a text"'
    )


def _scores(log: RunLog, splits: Splits, preset: str, cell: tuple, seeds: int, metric: str, max_length) -> list[float]:
    scores = []
    for seed in range(seeds):
        record = log.get_or_run(splits, _settings(preset, cell, seed, max_length))
        scores.append(record["scores"][metric])
        print(
            f"batch size {cell[0]}, rate {cell[1]:g}, {cell[2]} epochs, seed {seed}: "
            f"{metric} {format_percent(scores[-1])}, {record['seconds']:.0f} s",
            flush=True,
        )
    return scores


def _settings(preset: str, cell: tuple, seed: int, max_length: int | None) -> RunSettings:
    batch_size, rate, epochs = cell
    return RunSettings(preset, batch_size, rate, epochs, seed, max_length)


def _show(found: dict[tuple, list[float]], best: tuple, metric: str) -> None:
    rows = [
        [
            str(size),
            f"{rate:g}",
            str(epochs),
            *format_mean_and_std(scores),
            "best" if (size, rate, epochs) == best else "",
        ]
        for (size, rate, epochs), scores in found.items()
    ]
    columns = ["batch size", "rate", "epochs", f"{metric} %", "spread"]
    title = f"Held-out rows, mean and standard deviation over {len(found[best])} seeds"
    print_table([*columns, ""], rows, title=title, numeric_columns=columns)


def _numbers(given: str, kind: type) -> list:
    """ "16,32" -> [16, 32]"""
    try:
        numbers = list(dict.fromkeys(kind(part) for part in given.split(",")))
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < float("inf") for number in numbers):
        raise ValueError(f"expected numbers above 0, separated by commas. Received: {given!r}.")
    return numbers
