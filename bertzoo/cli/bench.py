"""`bertzoo bench`: this library and the peers that are installed, the same work in one run."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bertzoo.bench.case import Case, Measured
from bertzoo.cli.console import percent, show_table
from bertzoo.cli.paths import check_file, write_whole

# Contestant -> the modules that it needs besides Keras's backend.
NEEDS = {
    "bertzoo": (),
    "transformers": ("transformers", "torch"),
    "transformers+compile": ("transformers", "torch"),
    "keras-hub": ("keras_hub", "tensorflow"),
}
BACKENDS = {"jax": "jax", "torch": "torch", "tensorflow": "tensorflow"}
CEILING_TIMEOUT = 120
Mode = StrEnum("Mode", ["train", "infer"])
Family = StrEnum("Family", {"bert": "bert", "deberta_v3": "deberta-v3"})
Size = StrEnum("Size", ["mini", "small", "base"])
Padding = StrEnum("Padding", ["none", "real"])
Dtype = StrEnum("Dtype", ["float32", "bfloat16"])


def bench(
    backend: Annotated[list[str] | None, typer.Option(help="jax, torch, tensorflow; all that are installed.")] = None,
    contestant: Annotated[list[str] | None, typer.Option(help=", ".join(NEEDS) + "; all that are installed.")] = None,
    mode: Annotated[list[Mode] | None, typer.Option(help="What to time; both.")] = None,
    family: Annotated[Family, typer.Option(help="Whose encoder.")] = Family.bert,
    size: Annotated[Size, typer.Option(help="6 x 256, 6 x 384 or 12 x 768.")] = Size.mini,
    length: Annotated[int, typer.Option(min=8, max=512, help="Tokens of the longest row.")] = 128,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
    steps: Annotated[int, typer.Option(min=2, help="Batches a pass.")] = 10,
    padding: Annotated[list[Padding] | None, typer.Option(help="Full rows, or lengths like sentences'; both.")] = None,
    dtype: Annotated[Dtype, typer.Option()] = Dtype.float32,
    timeout: Annotated[int, typer.Option(min=10, help="Seconds after which a contestant is given up.")] = 600,
    out: Annotated[Path | None, typer.Option(help="A .json file for the numbers.")] = None,
) -> None:
    """Measure speed here against the peers that are installed.

    Each contestant runs in a process of its own, one after another: random weights, dropout 0.1 in training and none on
    attention weights, gradients clipped. Tokens are real tokens: padding is nobody's work.
    """
    if out is not None:
        check_file(out, (".json",))
    cases = list(_cases(backend, contestant, mode, padding))
    shared = {
        "family": family.value,
        "size": size.value,
        "length": length,
        "batch_size": batch_size,
        "steps": steps,
        "dtype": dtype.value,
    }
    ceilings: dict[str, float] = {}
    results = []
    for which in cases:
        case = Case(**which, **shared)
        if case.backend not in ceilings:
            rate = _child("bertzoo.bench.ceiling", case.dtype, case.backend, max(timeout, CEILING_TIMEOUT))
            if isinstance(rate, str):
                raise ValueError(f"{case.backend} can't multiply matrices here: {rate}")
            ceilings[case.backend] = rate
        print(f"{case.contestant} on {case.backend}: {case.mode}, padding {case.padding} …", flush=True)
        answer = _child("bertzoo.bench.contestants", json.dumps(case.to_json()), case.backend, timeout)
        results.append({"case": case.to_json(), **_figures(case, answer, ceilings[case.backend])})
    _show(results, shared, ceilings)
    if out is not None:
        write_whole(out, (json.dumps({"ceilings": ceilings, "results": results}, indent=1) + "\n").encode())


def _cases(backends, contestants, modes, paddings) -> Iterator[dict[str, str]]:
    wrong = [name for name in contestants or () if name not in NEEDS] + [
        name for name in backends or () if name not in BACKENDS
    ]
    if wrong:
        raise ValueError(
            f"{wrong[0]!r} is unknown: contestants are {', '.join(NEEDS)}, backends {', '.join(BACKENDS)}."
        )
    installed = [name for name, module in BACKENDS.items() if importlib.util.find_spec(module)]
    lacking = [name for name in backends or () if name not in installed]
    if lacking:
        raise ValueError(f"{lacking[0]} is not installed: pip install {lacking[0]}.")
    for mode in modes or list(Mode):
        for padding in paddings or list(Padding):
            for name in contestants or [name for name in NEEDS if all(map(importlib.util.find_spec, NEEDS[name]))]:
                for backend in ["torch"] if name.startswith("transformers") else backends or installed:
                    yield {"contestant": name, "backend": backend, "mode": mode.value, "padding": padding.value}


def _child(module: str, argument: str, backend: str, timeout: int):
    """What the module printed, or a string that says what went wrong."""
    environment = {**os.environ, "KERAS_BACKEND": backend}
    command = [sys.executable, "-m", module, argument]
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return f"gave up after {timeout} s"
    for line in ended.stdout.splitlines():
        if line.startswith("MEASURED "):
            return json.loads(line.removeprefix("MEASURED "))
    return (ended.stderr.strip().splitlines() or ["ended without a word"])[-1]


def _figures(case: Case, answer, ceiling: float) -> dict:
    if isinstance(answer, str):
        return {"failed": answer}
    measured = Measured(**answer)
    return {
        **asdict(measured),
        "tokens_per_second": float(case.lengths().sum() / measured.seconds),
        "share_of_ceiling": case.flops() / measured.seconds / ceiling,
        "compile_seconds": max(0.0, measured.first - measured.seconds),
    }


def _show(results: list[dict], shared: dict, ceilings: dict[str, float]) -> None:
    rows = []
    for result in results:
        case = result["case"]
        same = [case["mode"], case["padding"], case["contestant"], case["backend"]]
        if "failed" in result:
            rows.append([*same, "failed", "", "", "", ""])
            continue
        best_peer = max(
            (
                other["tokens_per_second"]
                for other in results
                if "failed" not in other
                and other["case"]["contestant"] != "bertzoo"
                and all(other["case"][key] == case[key] for key in ("mode", "padding"))
            ),
            default=None,
        )
        ratio = "" if best_peer is None else f"{result['tokens_per_second'] / best_peer:.2f}"
        rows.append(
            [
                *same,
                f"{result['tokens_per_second']:,.0f}",
                ratio,
                percent(result["share_of_ceiling"]),
                f"{result['memory'] / 2**30:.2f}",
                f"{result['compile_seconds']:.1f}",
            ]
        )
    numbers = ["tokens/s", "of the best peer", "of the ceiling", "GiB", "compile s"]
    shape = f"batches of {shared['batch_size']} × {shared['length']}"
    title = f"{shared['family']} {shared['size']}, {shape}, {shared['dtype']}"
    show_table(["mode", "padding", "contestant", "backend", *numbers], rows, title=title, numbers=numbers)
    for result in results:
        if "failed" in result:
            case = result["case"]
            print(f"{case['contestant']} on {case['backend']}, {case['mode']}: {result['failed']}")
    done = [result for result in results if "failed" not in result]
    for line in sorted({f"{result['device']}: {result['versions']}" for result in done}):
        print(line)
    rates = ", ".join(f"{name} {rate / 1e9:,.0f}" for name, rate in ceilings.items())
    print(f"Ceiling, a large matrix product in {shared['dtype']}, GFLOP/s: {rates}")
