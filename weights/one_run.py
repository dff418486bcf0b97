"""Fine-tunes bert_mini_en on the bundled reviews on each installed backend and keeps the losses: `python
weights/one_run.py`."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
BACKENDS = ("jax", "tensorflow", "torch")
RUN = """
import json, sys
import keras
import bertzoo as bz
from bertzoo.data import load_reviews

bz.set_seed(0)
texts, labels = load_reviews("train")
model = bz.TextClassifier.from_preset("bert_mini_en", labels=["negative", "positive"])
losses = []

class Read(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.before = 0.0

    def on_train_batch_end(self, batch, logs=None):
        total = float(logs["loss"]) * (batch + 1)  # Keras logs the mean since the epoch's begin
        losses.append(total - self.before)
        self.before = total

model.compile()
model.fit(texts, labels, batch_size=40, epochs=4, verbose=0, callbacks=[Read()])
json.dump(losses, open(sys.argv[1], "w"))
"""


def main() -> None:
    missing = [name for name in BACKENDS if find_spec(name) is None]
    if missing:
        sys.exit(f"one_run.py needs all three backends: pip install {' '.join(missing)}.")
    losses = {}
    for backend in BACKENDS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "losses.json"
            subprocess.run(
                [sys.executable, "-c", RUN, str(path)], check=True, env={**os.environ, "KERAS_BACKEND": backend}
            )
            losses[backend] = [round(loss, 9) for loss in json.loads(path.read_text())]
    packages = {name: version(name) for name in ("keras", "jax", "tensorflow", "torch")}
    machine = f"{os.cpu_count()} CPU cores, {platform.machine()}, Python {platform.python_version()}"
    result = {"machine": machine, "packages": packages, "losses": losses}
    (HERE / "one_run.json").write_text(json.dumps(result) + "\n")
    worst = max(abs(a - b) for backend in losses for a, b in zip(losses[backend], losses["jax"]))
    print(f"{len(losses['jax'])} steps; largest difference between two backends: {worst:.1e}")


if __name__ == "__main__":
    main()
