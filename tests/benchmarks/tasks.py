"""bertzoo and a plain transformers + PyTorch loop fine-tune the same model on the same task with the same settings.

    KERAS_BACKEND=… python tests/benchmarks/run.py tasks MODEL --data DIRECTORY
        --task {sst2,mrpc,stsb,wnut17,ewt_pos,squad} [--seeds 5] [--first-seed 0] [--examples N]
        [--held N] [--epochs E] [--rate R] [--json FILE] [--who bertzoo transformers random]

MODEL is a checkpoint directory (all-MiniLM-L6-v2 in the published figures); DIRECTORY holds the sets, a folder each.
The figures: MRPC F1, STS-B Spearman, WNUT-17 entity F1 and EWT accuracy of words on their test sets, SST-2 accuracy on
its dev set, SQuAD F1 on the held-out articles. All use a GPU where there is one, float32, batches of 32, AdamW with
decay 0.01 but on biases and LayerNorm, 10 % warm-up, linear decay, gradients clipped to 1, no dropout on attention
weights; `random` is bertzoo from random weights. Prints a line a run, the means with their standard errors, and the
margin that the project allows itself.
"""

import functools
import json
import math
import time
from pathlib import Path

import numpy as np
from benchmarks.common import add_data_argument, command_line, use_data
from benchmarks.task_data import (
    BATCH,
    COLUMNS,
    HELD,
    QUESTION,
    SETTINGS,
    bundle,
    column,
    figure,
    labels_of,
    load,
    texts,
)
from benchmarks.task_peers import run_transformers


def run_bertzoo(task: str, model: str, train, held, seed: int, epochs: int, rate: float, length: int, random=False):
    import bertzoo as bz

    bz.set_seed(seed)
    options = {"max_length": length, "new_head": True, "verbose": False}
    if task in COLUMNS:
        kind = {"labels": 1, "problem_type": "regression"} if task == "stsb" else {"labels": 2}
        network = bz.TextClassifier.from_preset(model, **kind, **options)
        x, y = bundle(texts(train, task)), column(train, COLUMNS[task][1])
    elif task == "squad":
        network = bz.QuestionAnswerer.from_preset(model, max_query_length=QUESTION, **options)
        x, y = train, None
    else:
        network = bz.TokenClassifier.from_preset(model, labels=labels_of(train), **options)
        x, y = column(train, "tokens"), column(train, "tags")
    if random:
        fresh = bz.Encoder.from_config(network.backbone.get_config())
        network.backbone.set_weights(fresh.get_weights())
    network.compile(bz.AdamW(rate))
    network.fit(x, y, epochs=epochs, batch_size=BATCH, verbose=0)
    if task in COLUMNS:
        logits = network.predict(bundle(texts(held, task)), batch_size=64, verbose=0)
        return logits[:, 0] if task == "stsb" else logits.argmax(axis=1)
    if task == "squad":
        result = network.answer([{k: row[k] for k in ("question", "context")} for row in held], batch_size=64)
        return column(result, "text")
    return network.tag_words(column(held, "tokens"), batch_size=64)


RUNS = {
    "bertzoo": run_bertzoo,
    "transformers": run_transformers,
    "random": functools.partial(run_bertzoo, random=True),
}


def main(arguments: list[str]) -> None:
    parser = command_line("tasks", __doc__)
    parser.add_argument("model")
    add_data_argument(parser)
    parser.add_argument("--task", required=True, choices=SETTINGS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--examples", type=int, help="training examples; all if left out")
    parser.add_argument("--held", type=int, help="test examples; all if left out")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--who", nargs="+", choices=RUNS, default=["bertzoo", "transformers"])
    parser.add_argument("--json", type=Path, help="file that gets a line for each run")
    options = parser.parse_args(arguments)
    use_data(options)
    task, (epochs, rate, length) = options.task, SETTINGS[options.task]
    epochs, rate = options.epochs or epochs, options.rate or rate
    train = load(task, "train", options.examples)
    held = load(task, HELD.get(task, "test"), options.held)
    print(f"{task}: {len(train)} to learn from, {len(held)} to test, {epochs} epochs, rate {rate:g}", flush=True)
    results = {}
    for who in options.who:
        scores = []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            begun = time.time()
            predicted = RUNS[who](task, options.model, train, held, seed, epochs, rate, length)
            scores.append(figure(task, held, predicted))
            seconds = time.time() - begun
            print(f"{who} seed {seed}: {scores[-1]:.2f} in {seconds:.0f} s", flush=True)
            if options.json:
                line = {"task": task, "who": who, "seed": seed, "score": scores[-1], "seconds": seconds}
                with options.json.open("a") as file:
                    file.write(json.dumps({**line, "examples": len(train), "epochs": epochs, "rate": rate}) + "\n")
        results[who] = scores
        print(
            f"{who}: {np.mean(scores):.2f} ± {error_of(scores):.2f} (standard error, {len(scores)} seeds)", flush=True
        )
    if {"bertzoo", "transformers"} <= set(results):
        gap = np.mean(results["bertzoo"]) - np.mean(results["transformers"])
        error = math.hypot(error_of(results["bertzoo"]), error_of(results["transformers"]))
        allowed = max(1.0, 2 * error) if math.isfinite(error) else 1.0
        verdict = "met" if gap >= -allowed else "missed"
        print(f"bertzoo − transformers: {gap:+.2f}; allowed below: {allowed:.2f}; {verdict}")


def error_of(scores: list[float]) -> float:
    return float(np.std(scores, ddof=1) / math.sqrt(len(scores))) if len(scores) > 1 else math.nan
