"""What the benchmarks share: the data's directory, clocks, processes of their own, and the peers' training step."""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RUN = Path(__file__).with_name("run.py")
PASSES = 3
RESULT = "RESULT "  # begins the line in which a process hands its result back


def read_data(*parts: str) -> str:
    """A file of the data directory, `BERTZOO_DATA`, unpacked where its name ends in .gz."""
    path = Path(os.environ["BERTZOO_DATA"], *parts)
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")


def command_line(command: str, description: str) -> argparse.ArgumentParser:
    """A parser whose help is a module's docstring."""
    style = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(f"run.py {command}", description=description, formatter_class=style)


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """`--data`; `use_data` hands it on."""
    parser.add_argument("--data", default=os.environ.get("BERTZOO_DATA"), help="directory with a folder for each set")


def use_data(options: argparse.Namespace) -> None:
    """Sets `BERTZOO_DATA`, which `bertzoo.data.load` reads too."""
    if not options.data:
        sys.exit("name the directory of the data sets: --data, or BERTZOO_DATA in the environment.")
    os.environ["BERTZOO_DATA"] = options.data


def seconds_of(function: Callable[[], object]) -> float:
    """How long one call takes. The function returns when its work is done."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def measure(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the median pass, and of the first, which compiles."""
    first, *others = [seconds_of(function) for _ in range(PASSES + 1)]
    return statistics.median(others), first


def take_turns(functions: dict[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """Name -> seconds of the best pass, and of the first. They take turns, as a machine's own speed changes."""
    taken = {name: [] for name in functions}
    for _ in range(PASSES + 1):
        for name, function in functions.items():
            taken[name].append(seconds_of(function))
    return {name: (min(others), first) for name, (first, *others) in taken.items()}


def peak_memory(backend: str) -> int:
    """The most bytes this process has held: on the device if the backend reports it, otherwise on the host."""
    if backend == "torch":
        import torch

        if torch.cuda.is_available():
            return torch.cuda.max_memory_allocated()
    if backend == "jax":
        import jax

        used = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        if used:
            return used
    import resource  # Windows has none

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_in_process(
    command: str, argument: object, environment: dict[str, str], timeout: float | None = None
) -> dict | float | str:
    """Calls `child(argument)` of a benchmark in a process of its own.

    Returns:
        Its result, or a string that says what went wrong.
    """
    line = [sys.executable, str(RUN), command, "child", json.dumps(argument)]
    try:
        ended = subprocess.run(line, env=os.environ | environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return f"gave up after {timeout} s"
    for printed in ended.stdout.splitlines():
        if printed.startswith(RESULT):
            return json.loads(printed.removeprefix(RESULT))
    return (ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}, without a word"])[-1]


def torch_device() -> str:
    """Where the peers compute."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def torch_trainer(model, rate: float, steps: int) -> Callable[[], None]:
    """BERT's recipe for a PyTorch model: AdamW, no decay on biases and LayerNorm, 10 % warm-up, linear decay, clip 1.

    Returns:
        A function to call after each `backward`.
    """
    import torch
    import transformers

    def is_plain(name: str) -> bool:
        return name.endswith("bias") or "LayerNorm" in name

    groups = [
        {"params": [p for name, p in model.named_parameters() if is_plain(name) == plain], "weight_decay": decay}
        for plain, decay in ((False, 0.01), (True, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, eps=1e-8)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, -(-steps // 10), steps)

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    return step
