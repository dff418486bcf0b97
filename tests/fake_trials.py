"""What tests of grids and of GLUE share: tables, and a model that is not trained."""

from pathlib import Path
from typing import ClassVar

import numpy as np


def write(path: Path, **columns) -> Path:
    """A table with tabs, of columns of equal length."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join("\t".join(map(str, row)) for row in [[*columns], *zip(*columns.values())]) + "\n")
    return path


class Fake:
    """In place of a fine-tuned model: its answers depend on the settings alone."""

    calls: ClassVar[list] = []
    stop_at: ClassVar[int | None] = None

    def __init__(self, parts, settings):
        Fake.calls.append(settings)
        if len(Fake.calls) == Fake.stop_at:
            raise KeyboardInterrupt
        self.splits = parts
        self.rng = np.random.default_rng([settings.seed, settings.batch_size, round(1e6 * settings.learning_rate or 0)])

    def classify(self, x):
        count = len(x)
        if self.splits.classes is None:
            return [{"value": value} for value in self.rng.normal(size=count)]
        return [{"label": self.splits.classes[i]} for i in self.rng.integers(0, len(self.splits.classes), count)]

    def save_to_preset(self, directory):
        directory.mkdir(parents=True)
