"""Fine-tuning runs, scored on validation examples and logged, so that none is repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.cli.app import import_bertzoo
from bertzoo.cli.dataset import Splits
from bertzoo.cli.fit import choose_classifier_options
from bertzoo.cli.paths import write_atomically
from bertzoo.metrics import accuracy, f1, matthews_corrcoef, pearson, spearman

if TYPE_CHECKING:
    from bertzoo.tasks.text_classifier import TextClassifier

# Names of the class whose F1 GLUE reports.
_POSITIVE = ("1", "equivalent", "duplicate")


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run; a `learning_rate` of None is the default for the model's size."""

    preset: str
    batch_size: int
    learning_rate: float | None
    epochs: int
    seed: int
    max_length: int | None = None


class RunLog:
    """The finished runs in a JSON file, which is replaced after each run."""

    def __init__(self, path: Path):
        """Reads the log.

        Raises:
            ValueError: The file holds something else.
        """
        self.path, self.runs = path, []
        if path.exists():
            try:
                self.runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
            except (ValueError, TypeError, KeyError):
                raise ValueError(f"{path} must be a list of runs: move it away, or name another path.") from None

    def get_or_run(self, splits: Splits, settings: RunSettings) -> dict[str, Any]:
        """The scores and seconds of a run: from the log, otherwise it is run and logged."""
        key = {**asdict(settings), "data": splits.checksum()}
        for record in self.runs:
            if all(record.get(name) == value for name, value in key.items()):
                return record
        started = time.perf_counter()
        model = fine_tune_classifier(splits, settings)
        record = {**key, "scores": _score_model(model, splits), "seconds": round(time.perf_counter() - started, 1)}
        self.runs.append(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (json.dumps({"runs": self.runs}, indent=1) + "\n").encode())
        return record


def fine_tune_classifier(splits: Splits, settings: RunSettings) -> TextClassifier:
    """A text classifier, or a regression, fit on the training examples."""
    bz = import_bertzoo()

    bz.set_seed(settings.seed)
    options, _ = choose_classifier_options(splits)
    model = bz.TextClassifier.from_preset(
        settings.preset, max_length=settings.max_length, new_head=True, verbose=False, **options
    )
    model.compile(bz.AdamW(settings.learning_rate or model.backbone.config.default_learning_rate))
    model.fit(splits.train, epochs=settings.epochs, batch_size=settings.batch_size, verbose=0)
    return model


def _score_model(model: TextClassifier, splits: Splits) -> dict[str, float]:
    """Accuracy, F1 and Matthews' correlation on the validation examples; for a regression, Pearson's and Spearman's.

    F1 is that of the class 1, equivalent or duplicate if there is one, as in GLUE, otherwise the mean over classes.
    """
    answers, truth = model.classify(splits.validation), splits.validation.targets
    if splits.classes is None:
        predicted = [answer["value"] for answer in answers]
        return {"pearson": pearson(truth, predicted), "spearman": spearman(truth, predicted)}
    predicted = [answer["label"] for answer in answers]
    positive = next((name for name in splits.classes if name in _POSITIVE), None)
    binary = len(splits.classes) == 2 and positive is not None
    score = f1(truth, predicted, positive_label=positive) if binary else f1(truth, predicted, "macro")
    matthews = matthews_corrcoef(truth, predicted)
    return {"accuracy": accuracy(truth, predicted), "f1": score, "matthews": matthews}


def format_mean_and_std(values: Sequence[float]) -> tuple[str, str]:
    """The mean and, for more than one value, the sample standard deviation, in percent."""
    spread = f"{100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else "–"
    return f"{100 * np.mean(values):.1f}", spread
