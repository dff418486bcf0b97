"""A sentence encoder learns with in-batch negatives in large batches, beside sentence-transformers: seconds a step, and
memory.

    python tests/benchmarks/run.py gradcache MODEL --data DIRECTORY [--batch 16384] [--mini 128] [--who jax torch …]

MODEL is a directory of sentence-transformers. Questions of SQuAD's training set and their paragraphs, cut to `--length`
tokens, are pairs; loss, batch and mini-batches are the same for all. `jax` and `torch` are bertzoo, by
`compile(mini_batch_size=)`; `sentence_transformers` is CachedMultipleNegativesRankingLoss. For bertzoo the memory of a
plain batch of `--plain` examples is measured too. Each runs in a process of its own, one after another. A step is an
update from a batch on the host: of bertzoo as `fit` makes it, packing included; of sentence-transformers from tokens
that are ready. The first step, which compiles, does not count. bfloat16 on a GPU, float32 on a CPU, where
`--batch 64 --mini 16 --plain 16` is enough to try.
"""

import json
import os
import statistics
import time

from benchmarks.common import (
    add_data_argument,
    command_line,
    peak_memory,
    read_data,
    run_in_process,
    torch_device,
    use_data,
)

WHO = ("jax", "torch", "sentence_transformers")
RATE = 2e-5


def squad_pairs(count: int) -> tuple[list[str], list[str]]:
    """Questions and their paragraphs, spread over all articles; the same again where there are not so many."""
    rows = [
        (answered["question"], paragraph["context"])
        for article in json.loads(read_data("squad", "train.json.gz"))["data"]
        for paragraph in article["paragraphs"]
        for answered in paragraph["qas"]
    ]
    rows *= -(-count // len(rows))
    step = len(rows) // count
    questions, paragraphs = zip(*rows[::step][:count])
    return list(questions), list(paragraphs)


def bertzoo_steps(argument: dict) -> dict:
    import keras

    import bertzoo as bz
    from bertzoo.training.step import jit_compile_setting

    on_gpu = torch_device() == "cuda"
    policy = "mixed_bfloat16" if on_gpu else "float32"
    model = bz.SentenceEncoder.from_preset(
        argument["model"], verbose=False, dtype=policy, dropout=0.1, max_length=argument["length"]
    )
    jit = jit_compile_setting() if on_gpu else "auto"
    mini = argument["mini"] if argument["batch"] > argument["mini"] else None
    model.compile(bz.AdamW(RATE), "multiple_negatives", mini_batch_size=mini, no_duplicates=False, jit_compile=jit)
    ended, losses, steps = [time.perf_counter()], [], argument["steps"] + 1

    def end(batch, logs):
        if batch in (0, steps - 1):  # waits for the device; between, the host makes batches ahead
            losses.append(float(logs["loss"]))
            ended.append(time.perf_counter())

    pairs = squad_pairs(argument["batch"] * steps)
    started = time.perf_counter()
    data = model.data.batches(pairs, batch_size=argument["batch"], shuffle=False, with_targets=True)
    ready = time.perf_counter() - started
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=end)
    model.fit(data, verbose=0, callbacks=[callback])
    begun, first, last = ended
    return {
        "seconds": (last - first) / (steps - 1),
        "first": first - begun,
        "preparation": ready,
        "memory": peak_memory(keras.backend.backend()),
        "loss": losses[0],
        "real": data.padding_efficiency,
    }


def sentence_transformers_steps(argument: dict) -> dict:
    import torch
    from benchmarks.common import torch_trainer
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    device = torch_device()
    model = SentenceTransformer(argument["model"], device=device)
    model.max_seq_length = argument["length"]
    model.train()
    loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=argument["mini"])
    update = torch_trainer(model, RATE, argument["steps"] + 1)
    pairs = squad_pairs(argument["batch"] * (argument["steps"] + 1))
    seconds, losses = [], []
    for step in range(argument["steps"] + 1):
        rows = slice(step * argument["batch"], (step + 1) * argument["batch"])
        features = [model.preprocess(column[rows]) for column in pairs]
        started = time.perf_counter()
        features = [
            {name: x.to(device) if hasattr(x, "to") else x for name, x in column.items()} for column in features
        ]
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            value = loss(features, None)
            value.backward()
        update()
        losses.append(value.item())  # waits for the device
        seconds.append(time.perf_counter() - started)
    return {
        "seconds": statistics.mean(seconds[1:]),
        "first": seconds[0],
        "memory": peak_memory("torch"),
        "loss": losses[0],
    }


def child(argument: dict) -> dict:
    steps = sentence_transformers_steps if argument["who"] == "sentence_transformers" else bertzoo_steps
    return steps(argument)


def main(arguments: list[str]) -> None:
    parser = command_line("gradcache", __doc__)
    parser.add_argument("model")
    parser.add_argument("--who", nargs="+", choices=WHO, default=list(WHO))
    for name, default in (("batch", 16384), ("mini", 128), ("plain", 256), ("steps", 4), ("length", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    add_data_argument(parser)
    options = parser.parse_args(arguments)
    use_data(options)
    results: dict[str, dict | float | str] = {}
    for who in options.who:
        environment = {} if who == "sentence_transformers" else {"KERAS_BACKEND": who}
        environment |= {"BERTZOO_DATA": os.environ["BERTZOO_DATA"]}
        common = {"who": who, **{name: getattr(options, name) for name in ("model", "mini", "steps", "length")}}
        results[who] = run_in_process("gradcache", {**common, "batch": options.batch}, environment)
        print(f"{who}, {options.batch} in {options.mini}: {json.dumps(results[who])}", flush=True)
        if who != "sentence_transformers":
            plain = {**common, "batch": options.plain, "mini": options.plain}
            results[f"{who} plain"] = run_in_process("gradcache", plain, environment)
            print(f"{who}, plain {options.plain}: {json.dumps(results[f'{who} plain'])}", flush=True)
    for who in options.who:
        measured, plain = results[who], results.get(f"{who} plain")
        if isinstance(measured, dict) and isinstance(plain, dict):
            print(f"{who}: {measured['memory'] / plain['memory']:.2f} times the memory of a plain batch")
        peer = results.get("sentence_transformers")
        if isinstance(measured, dict) and isinstance(peer, dict) and measured is not peer:
            print(f"{who}: {measured['seconds'] / peer['seconds']:.2f} times sentence-transformers' seconds a step")
