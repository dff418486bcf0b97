"""Measures the presets and keeps each number in weights/results.json as soon as it is known.

    BERTZOO_DATA=DIRECTORY python weights/measure.py rates [NAME …] [--task TASK …]
    BERTZOO_DATA=DIRECTORY python weights/measure.py scores [NAME …] [--task TASK …] [--seed 0 1 2] [--again]
    python weights/measure.py speed [NAME …]
    python weights/measure.py cloze [NAME …]
    BERTZOO_DATA=DIRECTORY python weights/measure.py sentences [NAME or DIRECTORY …]

`rates` scores four peak rates on the dev sets of two tasks, STS-B for sentences and WNUT-17 for words. `scores`
fine-tunes with the best rate and one recipe for all, and scores as tests/benchmarks/tasks.py does, to whose sets
BERTZOO_DATA leads; with `--again`, in second runs, which tell how far the numbers can be trusted. What has its number
is passed over. `speed` times a sentence classifier on this machine. `cloze` counts the committed facts whose word is
among a masked language model's ten likeliest. `sentences` prints, of sentence encoders, STS-B's Spearman correlation,
and how questions of SQuAD's held-out articles find their paragraphs among all of these articles. NAME is a preset of
this directory; all by default. Several processes may share the work. `python weights/report.py` makes tables and
pictures of the numbers.
"""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import keras
import numpy as np

import bertzoo as bz
from bertzoo.backend import accelerator_name, device_name, keras_versions_text
from bertzoo.data import load_cloze
from bertzoo.retrieval import evaluate_retrieval, evaluate_sts

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from benchmarks import tasks  # noqa: E402
from benchmarks.common import measure, peak_memory  # noqa: E402

RATE = 1e-4  # the best of RATES, in the mean of bert, electra and deberta, on each of RATED
TASKS = {  # epochs, longest row
    "sst2": (3, 128),
    "mrpc": (5, 128),
    "stsb": (6, 128),
    "wnut17": (8, 128),
    "ewt_pos": (6, 128),
    "squad": (4, 384),
}
RATES = (5e-5, 1e-4, 2e-4, 4e-4)
RATED = ("stsb", "wnut17")
LENGTH = 128
PRESETS = sorted(path.parent.name for path in HERE.glob("*/pretrain.toml"))
SENTENCE_ENCODERS = ["sentence_mini_en"]


def score(name: str, task: str, seed: int, rate: float | None = None) -> float:
    """In percent; with a `rate`, on the dev set."""
    epochs, length = TASKS[task]
    held_out = tasks.HELD.get(task, "test") if rate is None else "dev"
    train, held = (tasks.load(task, split, None) for split in ("train", held_out))
    predicted = tasks.run_bertzoo(task, str(HERE / name), train, held, seed, epochs, rate or RATE, length)
    return round(tasks.figure(task, held, predicted), 2)


def speed(name: str) -> dict[str, float | str]:
    """Tokens a second in rows of 128: bfloat16 on an accelerator, float32 on CPUs; the median of three."""
    fast = accelerator_name() is not None
    rows, steps = (1024, 30) if fast else (16, 6)
    options = {"labels": 2, "new_head": True, "verbose": False, "dtype": "mixed_bfloat16" if fast else "float32"}
    network = bz.TextClassifier.from_preset(HERE / name, **options)
    network.tokenizer = None
    network.compile(bz.AdamW(RATE))
    rng = np.random.default_rng(0)
    ids = rng.integers(200, 4000, (steps * rows, LENGTH)).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids), "lengths": np.full(len(ids), LENGTH, "int32")}
    labels = rng.integers(0, 2, len(ids))
    return {
        "train": _rate(ids.size, lambda: network.fit(inputs, labels, batch_size=rows, verbose=0)),
        "peak_bytes": peak_memory(keras.backend.backend()),
        "infer": _rate(ids.size, lambda: network.predict(inputs, batch_size=rows, verbose=0)),
        "date": time.strftime("%Y-%m-%d"),
    }


def _rate(tokens: int, run) -> int:
    return round(tokens / measure(run)[0])


def know(name: str) -> int:
    """How many of the fifty facts."""
    model = bz.MaskedLM.from_preset(HERE / name, verbose=False)
    texts, answers = load_cloze()
    tokenizer = model.tokenizer
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    best = model.fill_mask([text.replace("[MASK]", mask) for text in texts], top_k=10)
    return sum(word in [guess["token"].strip().lower() for guess in guesses] for word, guesses in zip(answers, best))


def sentences(preset: str) -> dict[str, float]:
    """In percent: STS-B's Spearman correlation on the test set, MRR@10 and nDCG@10 of SQuAD's questions."""
    encoder = bz.SentenceEncoder.from_preset(HERE / preset if (HERE / preset).is_dir() else preset, verbose=False)
    pairs, questions = tasks.load("stsb", "test", None), tasks.load("squad", "dev", None)
    columns = [[row[name] for row in pairs] for name in ("sentence1", "sentence2", "score")]
    corpus = {context: context for context in dict.fromkeys(row["context"] for row in questions)}
    found = evaluate_retrieval(
        encoder,
        {str(number): row["question"] for number, row in enumerate(questions)},
        corpus,
        {str(number): [row["context"]] for number, row in enumerate(questions)},
        cutoffs=(10,),
    )
    numbers = {"STS-B": evaluate_sts(encoder, *columns)["spearman"]}
    numbers |= {"MRR@10": found["mrr@10"], "nDCG@10": found["ndcg@10"]}
    return {name: round(100 * value, 1) for name, value in numbers.items()}


def objective(name: str) -> str:
    """What a preset was trained for."""
    return tomllib.loads((HERE / name / "pretrain.toml").read_text())["training"].get("objective", "mlm")


def read() -> dict:
    """What has been measured: model -> part -> key -> number."""
    path = HERE / "results.json"
    return json.loads(path.read_text()) if path.exists() else {}


def keep(name: str, part: str, key: str, value) -> None:
    """Puts one measurement into the file, in one step, whoever else does."""
    path = HERE / "results.json"
    lock = os.open(HERE, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    results = read()
    results.setdefault(name, {}).setdefault(part, {})[key] = value
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    os.replace(temporary, path)
    os.close(lock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rates", "scores", "speed", "cloze", "sentences"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--again", action="store_true", help="second runs of the seeds")
    arguments = parser.parse_args()
    machine = f"{device_name()}, {keras_versions_text()}"
    if arguments.what == "sentences":
        for name in arguments.names or SENTENCE_ENCODERS:
            print(name, sentences(name), flush=True)
        return
    for name in arguments.names or PRESETS:
        if arguments.what == "speed" and len(arguments.names) > 1:  # each in a process whose peak memory is its own
            subprocess.run([sys.executable, __file__, "speed", name], check=True)
        elif arguments.what == "speed":
            keep(name, "speed", machine, speed(name))
        elif arguments.what == "rates":
            for task in [task for task in arguments.task if task in RATED]:
                for rate in RATES:
                    keep_score(name, f"rates of {task}", f"{rate:g}", machine, task, 0, rate)
        elif arguments.what == "scores":
            for task in arguments.task:
                for seed in arguments.seed:
                    keep_score(name, task, f"{seed} again" if arguments.again else str(seed), machine, task, seed)
        elif objective(name) != "rtd":
            keep(name, "knows", "cloze", know(name))


def keep_score(name: str, part: str, key: str, machine: str, *run) -> None:
    """Of `score(name, *run)`, unless it is known."""
    if key in read().get(name, {}).get(part, {}):
        return
    begun = time.time()
    value = score(name, *run)
    print(f"{name} {part} {key}: {value} in {time.time() - begun:.0f} s", flush=True)
    keep(name, part, key, {"score": value, "machine": machine})


if __name__ == "__main__":
    main()
