"""Training and inference throughput of a classifier: bertzoo and the peers that are installed, in the same run.

    python tests/benchmarks/run.py speed [--backend jax] [--contestant bertzoo transformers] [--mode train] …

Long texts: `--family modernbert --size base --dtype bfloat16 --mode train --padding none --steps 10`, with
`--length 8192 --batch-size 4` or `--length 1024 --batch-size 32`. KerasHub runs BERT and DeBERTa alone here.

Each contestant runs in a process of its own, one after another: random weights, dropout 0.1 in training and none on
attention weights, gradients clipped. Throughput counts non-padding tokens.
"""

import argparse
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.case import SIZES, VOCABULARIES, Case, Measured
from benchmarks.common import command_line, run_in_process

from bertzoo.cli.app import format_percent, print_table

# Contestant -> the modules that it needs besides Keras's backend.
NEEDS = {
    "bertzoo": (),
    "transformers": ("transformers", "torch"),
    "transformers+compile": ("transformers", "torch"),
    "keras-hub": ("keras_hub", "tensorflow"),
}
BACKENDS = ("jax", "torch", "tensorflow")
MODES, PADDINGS = ("train", "infer"), ("none", "real")
CEILING_TIMEOUT = 120
SHARED = ("family", "size", "length", "batch_size", "steps", "dtype")


def main(arguments: list[str]) -> str | None:
    """Measures, prints a table, and writes the numbers to a file on request."""
    options = parse(arguments)
    lacking = [name for name in options.backend or () if not importlib.util.find_spec(name)]
    if lacking:
        return f"{lacking[0]} is not installed: pip install {lacking[0]}."
    shared = {name: getattr(options, name) for name in SHARED}
    ceilings: dict[str, float] = {}
    results = []
    for varied in cases(options):
        case = Case(**varied, **shared)
        environment = {"KERAS_BACKEND": case.backend}
        if case.backend not in ceilings:
            rate = run_in_process("speed", case.dtype, environment, max(options.timeout, CEILING_TIMEOUT))
            if isinstance(rate, str):
                return f"{case.backend} can't multiply matrices here: {rate}"
            ceilings[case.backend] = rate
        print(f"{case.contestant} on {case.backend}: {case.mode}, padding {case.padding} …", flush=True)
        answer = run_in_process("speed", case.to_json(), environment, options.timeout)
        results.append({"case": case.to_json(), **figures(case, answer, ceilings[case.backend])})
    show(results, shared, ceilings)
    if options.out is not None:
        options.out.write_text(json.dumps({"ceilings": ceilings, "results": results}, indent=1) + "\n")
    return None


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_line("speed", __doc__)
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, help="all that are installed if left out")
    parser.add_argument("--contestant", nargs="+", choices=NEEDS, help="all that are installed if left out")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--padding", nargs="+", choices=PADDINGS, default=PADDINGS, help="full rows, or real lengths")
    parser.add_argument("--family", choices=VOCABULARIES, default="bert")
    parser.add_argument("--size", choices=SIZES, default="mini")
    parser.add_argument("--length", type=int, default=128, help="tokens of the longest row")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10, help="batches a pass")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--timeout", type=float, default=600, help="seconds after which a contestant is given up")
    parser.add_argument("--out", type=Path, help="a .json file for the numbers")
    return parser.parse_args(arguments)


def child(argument: dict | str) -> dict | float:
    """In a process of its own: what a case measures, or for a dtype the ceiling of the machine."""
    from benchmarks.contestants import RUNNERS, product_rate

    if isinstance(argument, str):
        return product_rate(argument)
    case = Case(**argument)
    return asdict(RUNNERS[case.contestant](case))


def cases(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """What varies from case to case."""
    installed = [name for name in BACKENDS if importlib.util.find_spec(name)]
    contestants = [name for name in NEEDS if all(map(importlib.util.find_spec, NEEDS[name]))]
    if options.family == "modernbert":
        contestants = [name for name in contestants if name != "keras-hub"]
    for mode in options.mode:
        for padding in options.padding:
            for name in options.contestant or contestants:
                for backend in ["torch"] if name.startswith("transformers") else options.backend or installed:
                    yield {"contestant": name, "backend": backend, "mode": mode, "padding": padding}


def figures(case: Case, answer: dict | str, ceiling: float) -> dict:
    """What follows from a measurement, or why there is none."""
    if isinstance(answer, str):
        return {"failed": answer}
    measured = Measured(**answer)
    return {
        **answer,
        "tokens_per_second": float(case.lengths().sum() / measured.seconds),
        "share_of_ceiling": case.flops() / measured.seconds / ceiling,
        "compile_seconds": max(0.0, measured.first - measured.seconds),
    }


def show(results: list[dict], shared: dict, ceilings: dict[str, float]) -> None:
    """A table, the reasons of failures, and what all was measured on."""
    numbers = ["tokens/s", "of the best peer", "of the ceiling", "GiB", "compile s"]
    title = "{family} {size}, batches of {batch_size} × {length}, {dtype}".format(**shared)
    rows = [table_row(result, results) for result in results]
    print_table(["mode", "padding", "contestant", "backend", *numbers], rows, title=title, numeric_columns=numbers)
    for result in results:
        if "failed" in result:
            print("{contestant} on {backend}, {mode}: ".format(**result["case"]) + result["failed"])
    for line in sorted({"{device}: {versions}".format(**result) for result in results if "failed" not in result}):
        print(line)
    rates = ", ".join(f"{name} {rate / 1e9:,.0f}" for name, rate in ceilings.items())
    print(f"Ceiling, a large matrix product in {shared['dtype']}, GFLOP/s: {rates}")


def table_row(result: dict, results: list[dict]) -> list[str]:
    case = result["case"]
    names = [case["mode"], case["padding"], case["contestant"], case["backend"]]
    if "failed" in result:
        return [*names, "failed", "", "", "", ""]
    peers = [
        other["tokens_per_second"]
        for other in results
        if "failed" not in other
        and other["case"]["contestant"] != "bertzoo"
        and all(other["case"][key] == case[key] for key in ("mode", "padding"))
    ]
    return [
        *names,
        f"{result['tokens_per_second']:,.0f}",
        f"{result['tokens_per_second'] / max(peers):.2f}" if peers else "",
        format_percent(result["share_of_ceiling"]),
        f"{result['memory'] / 2**30:.2f}",
        f"{result['compile_seconds']:.1f}",
    ]
