"""Measures the presets of this directory and writes weights/results.json, a part at a time, whatever else is in it.

    BERTZOO_DATA=… python weights/measure.py scores [NAME …] [--task TASK …] [--seeds 3]
    python weights/measure.py speed [NAME …]

`scores` fine-tunes on SST-2, MRPC, STS-B, WNUT-17, EWT's parts of speech and SQuAD, the same recipe for each model, and
scores on the sets named in TASKS. `speed` times training and inference of a sentence classifier on this machine.
BERTZOO_DATA names a folder with a folder for each set. NAME is a preset of this directory or any path; all by default.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

import bertzoo as bz
from bertzoo import metrics
from bertzoo.bench.device import device, keras_versions
from bertzoo.data import load

HERE = Path(__file__).parent
RATE, BATCH = 2e-4, 32
TASKS = {  # epochs, longest row, the split that is scored, metric
    "sst2": (3, 128, "dev", "accuracy"),
    "mrpc": (5, 128, "test", "F1"),
    "stsb": (6, 128, "test", "Spearman"),
    "wnut17": (8, 128, "test", "entity F1"),
    "ewt_pos": (6, 128, "test", "accuracy"),
    "squad": (4, 384, "dev", "F1"),
}


def fine_tune(model: str, task: str, seed: int) -> float:
    """The score in percent."""
    epochs, length, split, _ = TASKS[task]
    bz.set_seed(seed)
    train, held = load(task, "train"), load(task, split)
    options = {"max_length": length, "new_head": True, "verbose": False}
    run = {"squad": _squad, "wnut17": _words, "ewt_pos": _words}.get(task, _texts)
    return 100 * run(model, task, train, held, options, {"epochs": epochs, "batch_size": BATCH, "verbose": 0})


def _texts(model, task, train, held, options, fit) -> float:
    columns = ("sentence",) if task == "sst2" else ("sentence1", "sentence2")
    target = "score" if task == "stsb" else "label"
    kind = {"labels": 1, "problem": "regression"} if task == "stsb" else {"labels": 2}
    network = bz.TextClassifier.from_preset(model, **kind, **options)
    network.compile(bz.AdamW(RATE))
    x, y = ([rows[name] for name in columns] for rows in (train, held))
    x, y = (found[0] if len(found) == 1 else tuple(found) for found in (x, y))
    network.fit(x, [float(v) if task == "stsb" else int(v) for v in train[target]], **fit)
    logits, wanted = network.predict(y, batch_size=128, verbose=0), np.array(held[target], "float64")
    if task == "stsb":
        return metrics.spearman(wanted, logits[:, 0])
    return {"sst2": metrics.accuracy, "mrpc": metrics.f1}[task](wanted.astype(int), logits.argmax(axis=1))


def _words(model, task, train, held, options, fit) -> float:
    labels = sorted({tag for row in train["tags"] for tag in row})
    network = bz.TokenClassifier.from_preset(model, labels=labels, **options)
    network.compile(bz.AdamW(RATE))
    network.fit(train["tokens"], train["tags"], **fit)
    scores = metrics.entity_scores(held["tags"], network.tag_words(held["tokens"], batch_size=128))
    return scores["f1" if task == "wnut17" else "accuracy"]


def _squad(model, task, train, held, options, fit) -> float:
    network = bz.QuestionAnswerer.from_preset(model, stride=128, question_limit=64, **options)
    network.compile(bz.AdamW(RATE))
    network.fit(train, **fit)
    found = network.answer([{name: row[name] for name in ("question", "context")} for row in held], batch_size=128)
    golds = [[answer["text"] for answer in row["answers"]] for row in held]
    return metrics.squad_scores([answer["text"] for answer in found], golds)["f1"] / 100


def speed(model: str) -> dict[str, float]:
    """Tokens a second in training and in inference, rows of 128 tokens: bfloat16 on an accelerator, float32 on CPUs."""
    fast = not device().startswith("CPU")
    rows, steps = (1024, 30) if fast else (16, 6)
    network = bz.TextClassifier.from_preset(
        model, labels=2, new_head=True, verbose=False, dtype="mixed_bfloat16" if fast else "float32"
    )
    network.compile(bz.AdamW(RATE))
    rng = np.random.default_rng(0)
    ids = rng.integers(200, 4000, (steps * rows, 128)).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids), "lengths": np.full(len(ids), 128, "int32")}
    network.preprocessor = None
    labels, found = rng.integers(0, 2, len(ids)), {}
    for name, run in {
        "train": lambda: network.fit(inputs, labels, batch_size=rows, verbose=0),
        "infer": lambda: network.predict(inputs, batch_size=rows, verbose=0),
    }.items():
        seconds = []
        for _ in range(4):
            begun = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - begun)
        found[name] = ids.size / min(seconds[1:])
    return found


def record(path: Path, model: str, part: str, key: str, value) -> None:
    """Puts one measurement into the file, in one step."""
    results = json.loads(path.read_text()) if path.exists() else {}
    results.setdefault(Path(model).name, {}).setdefault(part, {})[key] = value
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    os.replace(temporary, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["scores", "speed"])
    parser.add_argument("models", nargs="*", default=sorted(path.parent.name for path in HERE.glob("*/config.json")))
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    arguments = parser.parse_args()
    machine = f"{device()}, {keras_versions()}"
    for model in arguments.models:
        if arguments.what == "speed":
            found = {**speed(model), "date": time.strftime("%Y-%m-%d")}
            print(model, machine, found, flush=True)
            record(arguments.out, model, "speed", machine, found)
            continue
        for task in arguments.task:
            scores = []
            for seed in range(arguments.seeds):
                begun = time.time()
                scores.append(round(fine_tune(model, task, seed), 2))
                print(f"{model} {task} seed {seed}: {scores[-1]:.2f} in {time.time() - begun:.0f} s", flush=True)
            record(arguments.out, model, "scores", task, {"values": scores, "machine": machine})


if __name__ == "__main__":
    main()
