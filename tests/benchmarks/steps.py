"""What a training step of BERT takes under JAX, and the GPU's kernels in it.

    KERAS_BACKEND=jax python tests/benchmarks/run.py steps LENGTH BATCH [--size base] [--steps 40] [--kernels 30]

Milliseconds a step of five `fit` calls after the first, the median that a step's call takes before it returns, then
from a trace of one more `fit` the time that kernels run, their number in a step, and those that take longest. Rows are
full, bfloat16 on a GPU and float32 on a CPU, where the trace shows no kernels.
"""

import collections
import gzip
import json
import statistics
import tempfile
import time
from pathlib import Path

import jax
import keras
from benchmarks.case import SIZES, Case
from benchmarks.common import command_line, seconds_of

import bertzoo as bz
from bertzoo.backend import accelerator_name


def kernels(folder: str) -> list[dict]:
    """The events of a trace that ran on a stream of a GPU."""
    (file,) = Path(folder).rglob("perfetto_trace.json.gz")
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    named = [event for event in events if event.get("name") in ("process_name", "thread_name")]
    gpus = {e["pid"] for e in named if e["name"] == "process_name" and "GPU" in e["args"]["name"]}
    streams = {(e["pid"], e.get("tid")) for e in named if e["args"]["name"].startswith("Stream") and e["pid"] in gpus}
    return [event for event in events if event.get("ph") == "X" and (event["pid"], event.get("tid")) in streams]


def main(arguments: list[str]) -> None:
    parser = command_line("steps", __doc__)
    parser.add_argument("length", type=int)
    parser.add_argument("batch", type=int)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--kernels", type=int, default=30)
    run = parser.parse_args(arguments)
    keras.mixed_precision.set_global_policy("mixed_bfloat16" if accelerator_name() else "float32")
    case = Case("bertzoo", "jax", "train", run.size, run.length, run.batch, steps=run.steps)
    model = bz.TextClassifier(bz.Encoder(case.config()))
    model.compile(bz.AdamW(1e-5), metrics=[])
    ids, mask, labels = case.rows()

    def epoch() -> None:
        model.fit({"token_ids": ids, "padding_mask": mask}, labels, batch_size=run.batch, verbose=0)

    def fit() -> float:
        return seconds_of(epoch) * 1e3 / run.steps

    print(f"first fit {fit() * run.steps / 1e3:.1f} s; ms a step:", *(f"{fit():.2f}" for _ in range(5)), flush=True)
    step, calls = model.train_function, []

    def timed(*inputs):
        started = time.perf_counter()
        result = step(*inputs)
        calls.append((time.perf_counter() - started) * 1e3)
        return result

    model.train_function = timed
    fit()
    model.train_function = step
    print(f"its call returns after {statistics.median(calls):.2f} ms", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            fit()
        results = kernels(folder)
    total, count = collections.Counter(), collections.Counter()
    for event in results:
        total[event["name"]] += event["dur"] / 1e3 / run.steps
        count[event["name"]] += 1 / run.steps
    print(f"kernels run for {total.total():.2f} ms a step, {count.total():.0f} of them")
    for name, took in total.most_common(run.kernels):
        print(f"{took:8.3f} ms {count[name]:7.1f} × {name[:100]}")
