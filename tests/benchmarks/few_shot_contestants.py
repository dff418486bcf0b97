"""One contestant of the benchmark `few_shot`: `python few_shot_contestants.py NAME MODEL` reads jobs from standard
input, a line of JSON each, and writes seconds by the clock, those that the processor worked, and predicted classes."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

THREADS, EPOCHS, BATCH = 2, 20, 8
RESULT = "RESULT "  # as in common.py, which an environment with setfit alone can't import


def seconds_of(function: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and those that the processor worked for this process."""
    clock, work = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - clock, time.process_time() - work


def bertzoo(model: str):
    import bertzoo as bz

    def train(texts: list[str], labels: list[int], seed: int):
        bz.set_seed(seed)
        encoder = bz.SentenceEncoder.from_preset(model, verbose=False)
        classifiers = []
        taken = seconds_of(
            lambda: classifiers.append(encoder.fit_classifier(texts, labels, max(labels) + 1, verbose=0))
        )
        return taken, lambda rows: classifiers[0].predict(rows, verbose=0).argmax(axis=1).tolist()

    return train


def fine_tuning(model: str):
    import bertzoo as bz

    def train(texts: list[str], labels: list[int], seed: int):
        bz.set_seed(seed)
        classifier = bz.TextClassifier.from_preset(model, labels=max(labels) + 1, verbose=False)
        classifier.compile()
        taken = seconds_of(lambda: classifier.fit(texts, labels, epochs=EPOCHS, batch_size=BATCH, verbose=0))
        return taken, lambda rows: classifier.predict(rows, verbose=0).argmax(axis=1).tolist()

    return train


def setfit(model: str):
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    def train(texts: list[str], labels: list[int], seed: int):
        learner = SetFitModel.from_pretrained(model, device="cpu")
        options = {"report_to": "none", "save_strategy": "no", "show_progress_bar": False, "seed": seed}
        options["output_dir"] = tempfile.gettempdir()
        examples = Dataset.from_dict({"text": texts, "label": labels})
        taken = seconds_of(
            lambda: Trainer(model=learner, args=TrainingArguments(**options), train_dataset=examples).train()
        )
        return taken, lambda rows: learner.predict(rows, show_progress_bar=False).tolist()

    return train


def main(name: str, model: str) -> None:
    import torch

    torch.set_num_threads(THREADS)
    train = {"bertzoo": bertzoo, "setfit": setfit, "fine-tuning": fine_tuning}[name](model)
    for line in sys.stdin:
        job = json.loads(line)
        seconds, predict = train(job["texts"], job["labels"], job["seed"])
        print(RESULT + json.dumps([*seconds, predict(job["test_texts"])]), flush=True)


if __name__ == "__main__":
    os.environ |= {"KERAS_BACKEND": "torch", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # this checkout, and no module of this folder
    main(*sys.argv[1:])
