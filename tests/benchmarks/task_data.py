"""The sets of the benchmark `tasks`: their settings, examples as a list of dicts, and scores."""

import numpy as np

from bertzoo import data, metrics

BATCH = 32
SETTINGS = {  # epochs, peak rate, longest row
    "sst2": (1, 5e-5, 128),
    "mrpc": (4, 5e-5, 128),
    "stsb": (4, 5e-5, 128),
    "wnut17": (5, 2e-4, 128),
    "ewt_pos": (3, 2e-4, 128),
    "squad": (3, 1e-4, 384),
}
COLUMNS = {  # of texts, then the target
    "sst2": (("sentence",), "label"),
    "mrpc": (("sentence1", "sentence2"), "label"),
    "stsb": (("sentence1", "sentence2"), "score"),
}
HELD = {"sst2": "dev", "squad": "dev"}  # the others' is their test set
STRIDE, QUESTION, ANSWER, N_BEST = 128, 64, 30, 20


def load(task: str, split: str, count: int | None, seed: int = 0) -> list[dict]:
    result = data.load(task, split)
    rows = result if isinstance(result, list) else [dict(zip(result, row)) for row in zip(*result.values())]
    if count is not None and count < len(rows):
        rows = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))[:count]]
    return rows


def column(rows: list[dict], name: str) -> list:
    return [row[name] for row in rows]


def bundle(columns: tuple):
    """As `fit` takes them: one column alone, two as a pair."""
    return columns[0] if len(columns) == 1 else columns


def texts(rows: list[dict], task: str) -> tuple[list[str], ...]:
    return tuple(column(rows, name) for name in COLUMNS[task][0])


def figure(task: str, rows: list[dict], predicted) -> float:
    """The task's score in percent."""
    if task == "sst2":
        return 100 * metrics.accuracy(column(rows, "label"), predicted)
    if task == "mrpc":
        return 100 * metrics.f1(column(rows, "label"), predicted)
    if task == "stsb":
        return 100 * metrics.spearman(column(rows, "score"), predicted)
    if task == "squad":
        golds = [[answer["text"] for answer in row["answers"]] for row in rows]
        return metrics.squad_scores(predicted, golds)["f1"]
    scores = metrics.entity_scores(column(rows, "tags"), predicted)
    return 100 * scores["f1" if task == "wnut17" else "accuracy"]


def labels_of(train: list[dict]) -> list[str]:
    return sorted({tag for row in train for tag in row["tags"]})
