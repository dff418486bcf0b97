"""Runs of fine-tuning that are scored on held-out rows and written down, so that none is done twice."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.cli.app import start
from bertzoo.cli.console import progress
from bertzoo.cli.dataset import Parts
from bertzoo.cli.paths import write_whole
from bertzoo.metrics import accuracy, f1, matthews_corrcoef, pearson, spearman

# The class whose F1 GLUE reports, by the names it has in tables.
_POSITIVE = ("1", "equivalent", "duplicate")


@dataclass(frozen=True)
class Settings:
    """What a run is made with; a `learning_rate` of None is the one for the model's size."""

    preset: str
    batch_size: int
    learning_rate: float | None
    epochs: int
    seed: int
    max_length: int | None = None


class Log:
    """The finished runs in a JSON file, which is written as a whole after each."""

    def __init__(self, path: Path):
        """
        Raises:
            ValueError: The file holds something else.
        """
        self.path, self.runs = path, []
        if path.exists():
            try:
                self.runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
            except (ValueError, TypeError, KeyError):
                raise ValueError(f"{path} is no list of runs: move it away, or name another place.") from None

    def run(self, parts: Parts, settings: Settings) -> dict[str, Any]:
        """The scores and seconds of a run: as written down, or else it is done and written down."""
        key = {**asdict(settings), "data": parts.checksum()}
        for record in self.runs:
            if all(record.get(name) == value for name, value in key.items()):
                return record
        begun = time.perf_counter()
        model = fine_tune(parts, settings)
        record = {**key, "scores": scores_of(model, parts), "seconds": round(time.perf_counter() - begun, 1)}
        self.runs.append(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, (json.dumps({"runs": self.runs}, indent=1) + "\n").encode())
        return record


def fine_tune(parts: Parts, settings: Settings, shown: bool = False):
    """A text classifier, or a regression, fit on the part to learn from. With `shown`, it prints what is loaded, the
    recipe where that is the default, and progress with the scores on the held-out rows."""
    bz = start()

    bz.set_seed(settings.seed)
    problem_type = "regression" if parts.classes is None else "single_label_classification"
    model = bz.TextClassifier.from_preset(
        settings.preset,
        max_length=settings.max_length,
        new_head=True,
        verbose=shown,
        labels=parts.classes or 1,
        problem_type=problem_type,
    )
    rate = settings.learning_rate
    if rate is None and not shown:
        rate = model.backbone.config.learning_rate
    model.compile(None if rate is None else bz.AdamW(rate))
    options = {"epochs": settings.epochs, "batch_size": settings.batch_size, "verbose": 0}
    if shown:
        options |= {"validation_data": (parts.held.x, parts.targets(parts.held)), "verbose": progress()}
    model.fit(parts.train.x, parts.targets(parts.train), **options)
    return model


def scores_of(model, parts: Parts) -> dict[str, float]:
    """Accuracy, F1 and Matthews' correlation on the held-out rows; of a regression, Pearson's and Spearman's.

    F1 is that of the class 1, equivalent or duplicate where there is one, as GLUE's, and else the mean over classes.
    """
    answers = model.classify(parts.held.x)
    if parts.classes is None:
        truth, said = parts.targets(parts.held), [answer["value"] for answer in answers]
        return {"pearson": pearson(truth, said), "spearman": spearman(truth, said)}
    truth, said = parts.held.labels, [answer["label"] for answer in answers]
    positive = next((name for name in parts.classes if name in _POSITIVE), None)
    two = len(parts.classes) == 2 and positive is not None
    score = f1(truth, said, positive=positive) if two else f1(truth, said, "macro")
    return {"accuracy": accuracy(truth, said), "f1": score, "matthews": matthews_corrcoef(truth, said)}


def mean_and_spread(values: Sequence[float]) -> tuple[str, str]:
    """In percent: the mean, and the standard deviation of a sample where there is more than one value."""
    spread = f"{100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else "–"
    return f"{100 * np.mean(values):.1f}", spread
