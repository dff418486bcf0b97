"""All checks, on a machine that has nothing but Python and pip: `python3 tests/run.py`.

Makes a virtual environment with the three backends, lints, and runs the tests and the notebooks on each of them; tests
marked `once`, whose subject does not depend on the backend, run on the first alone. Then makes a second one with JAX
alone from a built wheel, and runs the quickstart there: no part of bertzoo may need TensorFlow or the checkout.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ("torch", "jax", "tensorflow")  # the first, which compiles nothing, also runs the tests marked `once`
# The CPU build where the index has one; JAX 0.10 is the last for Python 3.11.
PINS = ["torch==2.13.0", "keras==3.15.1", "tensorflow==2.21.*"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="only this one; may be repeated")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-test", help="where the environment is, or is made")
    arguments = parser.parse_args()
    backends = arguments.backend or BACKENDS
    begun = time.time()
    python = make_environment(arguments.venv, [*PINS, "-e", f".[{','.join(('test', *backends))}]"])
    step("lint", [python, "-m", "ruff", "check", "."])
    # Its first import builds a cache of fonts and says so, which nbval would take for a notebook's output.
    step("fonts", [python, "-c", "import matplotlib.pyplot"])
    with tempfile.TemporaryDirectory() as compiled:
        for backend in backends:
            environment = {"KERAS_BACKEND": backend}
            kept = {"JAX_COMPILATION_CACHE_DIR": compiled, **KEEP_COMPILED}
            chosen = [] if backend == backends[0] else ["-m", "not once"]
            step(f"tests on {backend}", [python, "-m", "pytest", *TESTS, *chosen], {**environment, **kept})
            step(f"notebooks on {backend}", [python, "-m", "pytest", *NOTEBOOKS], environment)
    check_wheel(python)
    print(f"\nall checks passed in {(time.time() - begun) / 60:.1f} minutes", flush=True)


# A test takes from disk what another one compiled for JAX, even single operations, which are hundreds where a model is
# called outside of a compiled step. With a limit on its size, JAX would read the whole folder at each write. Without
# one it takes no lock, and warns when it meets a file half written: not for notebooks, which have the library's cache.
KEEP_COMPILED = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_COMPILATION_CACHE_MAX_SIZE": "-1"}
TESTS = ["-n", "2", "--dist", "worksteal"]
NOTEBOOKS = [
    "--nbval",
    "--nbval-current-env",
    "--nbval-cell-timeout=120",
    "--nbval-sanitize-with=course/sanitize.cfg",
    "-p",
    "no:python",
    "-n",
    "2",
    "--dist",
    "loadscope",
    "course",
]


def make_environment(folder: Path, packages: list[str]) -> str:
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        step("virtual environment", [sys.executable, "-m", "venv", str(folder)])
    # Most modules that pip would compile are never imported; what is, the first process that imports it compiles.
    options = ["-q", "--disable-pip-version-check", "--no-compile"]
    step("install " + " ".join(packages), [python, "-m", "pip", "install", *options, *packages])
    return python


def check_wheel(python: str) -> None:
    """A wheel, JAX alone: imports no TensorFlow, and the quickstart of the README works away from the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        step("wheel", [python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, "."])
        wheel = next(Path(folder).glob("*.whl"))
        alone = make_environment(Path(folder) / "venv", [f"{wheel}[jax]"])
        code = (
            "import sys, bertzoo as bz; bz.TextClassifier.from_preset('bert_mini_en', "
            "verbose=False).classify(['good']); "
            "assert not {'tensorflow', 'torch'} & set(sys.modules)"
        )
        step("no TensorFlow", [alone, "-c", code], folder=folder)
        step("quickstart", [str(Path(alone).with_name("bertzoo")), "quickstart"], folder=folder)


def step(name: str, command: list[str], environment: dict[str, str] | None = None, folder: str | Path = ROOT) -> None:
    print(f"\n== {name}", flush=True)
    begun = time.time()
    clean = {key: value for key, value in os.environ.items() if key != "KERAS_BACKEND"}
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    # Containers often forbid Python to keep what it compiled: TensorFlow's import then takes 22 s in place of 8.
    keep = {"PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(command, cwd=folder, env={**clean, **quiet, **keep, **(environment or {})})
    if done.returncode:
        sys.exit(f"\n{name} failed (exit status {done.returncode})")
    print(f"   {time.time() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
