"""All checks, on a machine that has nothing but Python and pip: `python3 tests/run.py`.

Makes a virtual environment with the three backends, lints, and runs the tests and the notebooks on each of them; tests
marked `once`, whose subject does not depend on the backend, run on the first alone. Meanwhile it installs a wheel, with
JAX alone, into a second one, and runs the quickstart there: no part of bertzoo may need TensorFlow or the checkout.

Two steps run at a time, each shows its output when it ends, and the first that fails ends the others.

`--quick` is for work on the code: lint, order of imports, types, and the tests that are not marked `slow`, on one
backend, in the environment that runs it (`pip install -e ".[dev,torch]"`), in under three minutes on two cores.
"""

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ("torch", "jax", "tensorflow")  # the first, which compiles nothing, also runs the tests marked `once`
# The CPU build where the index has one; JAX 0.10 is the last for Python 3.11.
PINS = ["torch==2.13.0", "keras==3.15.1", "tensorflow==2.21.*"]

# Folders of tests that take as long as all others.
QUICK_HALF = ("checkpoints", "interop", "kernels", "layers", "metrics", "models", "retrieval", "tasks", "text")

SIGN_OF_LIFE = 120  # seconds: some machines end what prints nothing for ten minutes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="only this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="lint and quick tests, in this environment")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-test", help="where the environment is, or is made")
    arguments = parser.parse_args()
    begun = time.time()
    failed = []
    try:
        if arguments.quick:
            asyncio.run(check_quickly((arguments.backend or BACKENDS)[0]))
        else:
            asyncio.run(check(arguments.venv, arguments.backend or BACKENDS))
    except* Failed as group:
        failed = group.exceptions
    if failed:
        sys.exit(f"\n{failed[0]}")
    print(f"\nall checks passed in {(time.time() - begun) / 60:.1f} minutes", flush=True)


async def check(venv: Path, backends: list[str]) -> None:
    places = asyncio.Semaphore(2)

    async def in_turn(job, *arguments):
        await places.acquire()
        result = await job(*arguments)
        places.release()  # not after a failure: nothing else is to begin
        return result

    with tempfile.TemporaryDirectory() as compiled:
        async with asyncio.TaskGroup() as group:
            group.create_task(in_turn(check_wheel))
            python = await in_turn(prepare, venv, backends)
            suites, courses = list(tests(python, backends, compiled)), list(notebooks(python, backends))
            # In this order both cores are busy until the end, where the short parts are.
            for job in [*suites[:2], *courses[:1], *suites[2:], *courses[1:]]:
                group.create_task(in_turn(step, *job))
            group.create_task(in_turn(check_without_kernels, python, backends[0]))
            group.create_task(in_turn(check_site, python, backends[0]))


WITHOUT_KERNELS = ("layers/test_keras_harness.py", "models/test_encoder.py", "tasks/test_masked_lm.py")


async def check_without_kernels(python: str, backend: str) -> None:
    """A copy of the package without bertzoo/kernels: every operation is its formula, and all goes on."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "bertzoo", copy / "bertzoo", ignore=shutil.ignore_patterns("kernels", "__pycache__"))
        for name in ("tests", "course", "weights", "pyproject.toml"):
            (copy / name).symlink_to(ROOT / name)
        command = [python, "-m", "pytest", "-p", "no:nbval", "-m", "not once"]
        files = [f"tests/{name}" for name in WITHOUT_KERNELS]
        await step(f"without kernels on {backend}", [*command, *files], {"KERAS_BACKEND": backend}, folder)


async def check_site(python: str, backend: str) -> None:
    """The site builds, without a broken link or another warning."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", f"{folder}/site"]
        await step("site", command, {"KERAS_BACKEND": backend})


async def check_quickly(backend: str) -> None:
    halves = (
        [f"tests/{name}" for name in QUICK_HALF],
        [
            str(path.relative_to(ROOT))
            for path in sorted((ROOT / "tests").iterdir())
            if path.name not in QUICK_HALF and (path.is_dir() or path.name.startswith("test_"))
        ],
    )
    async with asyncio.TaskGroup() as group:
        await lint(sys.executable)
        for number, files in enumerate(halves, start=1):
            command = [sys.executable, "-m", "pytest", "-p", "no:nbval", "-m", "not slow", *files]
            name = f"quick tests on {backend}, {number} of 2"
            group.create_task(step(name, command, {"KERAS_BACKEND": backend}))


async def lint(python: str) -> None:
    await step("lint", [python, "-m", "ruff", "check", "."])
    await step("format", [python, "-m", "ruff", "format", "--check", "--diff", "."])
    await step("order of imports", [str(Path(python).with_name("lint-imports"))])
    await step("types", [python, "-m", "mypy"])


async def prepare(venv: Path, backends: list[str]) -> str:
    python = await make_environment(venv, [*PINS, "-e", f".[{','.join(('test', 'docs', *backends))}]"])
    await lint(python)
    # Its first import builds a cache of fonts and says so, which nbval would take for a notebook's output.
    await step("fonts", [python, "-c", "import matplotlib.pyplot"])
    return python


# A test takes from disk what another one compiled for JAX, even single operations, which are hundreds where a model is
# called outside of a compiled step. With a limit on its size, JAX would read the whole folder at each write. Without
# one it takes no lock, and warns when it meets a file half written: not for notebooks, which have the library's cache.
KEEP_COMPILED = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_COMPILATION_CACHE_MAX_SIZE": "-1"}
STRICT = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=120", "--nbval-sanitize-with=course/sanitize.cfg"]


def tests(python: str, backends: list[str], compiled: str) -> Iterator[tuple]:
    """Name, command and environment of a step for each backend."""
    for backend in reversed(backends):
        chosen = ["-p", "no:nbval", *([] if backend == backends[0] else ["-m", "not once"])]
        environment = {"KERAS_BACKEND": backend, "JAX_COMPILATION_CACHE_DIR": compiled, **KEEP_COMPILED}
        yield f"tests on {backend}", [python, "-m", "pytest", *chosen], environment


def notebooks(python: str, backends: list[str]) -> Iterator[tuple]:
    """The last in parts, so that what runs last is short, and the other core is not idle for long."""
    plugins = str(ROOT / "tests" / "course")  # where warm_kernels.py is: kernels that need not import Keras anew
    files = sorted(map(str, ROOT.glob("course/*.ipynb")))
    for backend in [*backends[1:], backends[0]]:
        parts = 4 if backend == backends[0] else 1
        for part in range(parts):
            command = [python, "-m", "pytest", "-p", "warm_kernels", *STRICT, *files[part::parts]]
            environment = {"KERAS_BACKEND": backend, "PYTHONPATH": plugins}
            yield f"notebooks on {backend}, {part + 1} of {parts}", command, environment


async def check_wheel() -> None:
    """A wheel, JAX alone: imports no TensorFlow, and the quickstart of the README works away from the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        python = await make_environment(Path(folder) / "venv", [".[jax]"])
        code = (
            "import sys, bertzoo as bz; bz.TextClassifier.from_preset('bert_mini_en', "
            "verbose=False).classify(['good']); "
            "from bertzoo.checkpoints.files import bundled_presets_directory as bundled; "
            "assert (bundled() / 'results.json').is_file(); "
            "assert not {'tensorflow', 'torch'} & set(sys.modules)"
        )
        await step("no TensorFlow", [python, "-c", code], folder=folder)
        await step("quickstart", [str(Path(python).with_name("bertzoo")), "quickstart"], folder=folder)


async def make_environment(folder: Path, packages: list[str]) -> str:
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        await step("virtual environment", [sys.executable, "-m", "venv", str(folder)])
    # Most modules that pip would compile are never imported; what is, the first process that imports it compiles.
    options = ["-q", "--disable-pip-version-check", "--no-compile"]
    await step("install " + " ".join(packages), [python, "-m", "pip", "install", *options, *packages])
    return python


async def step(
    name: str, command: list[str], environment: dict[str, str] | None = None, folder: str | Path = ROOT
) -> None:
    print(f"-- {name} begins", flush=True)
    begun = time.time()
    clean = {key: value for key, value in os.environ.items() if key != "KERAS_BACKEND"}
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    # Containers often forbid Python to keep what it compiled: TensorFlow's import then takes 22 s in place of 8.
    keep = {"PYTHONDONTWRITEBYTECODE": ""}
    environment = {**clean, **quiet, **keep, **(environment or {})}
    with tempfile.TemporaryFile() as output:  # not a pipe, which a process that outlives the step would hold open
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdout=output, stderr=asyncio.subprocess.STDOUT
        )
        try:
            while process.returncode is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), SIGN_OF_LIFE)
                    break
                print(f"   {name}: {time.time() - begun:.0f} s", flush=True)
        finally:  # another step failed, or Ctrl-C
            if process.returncode is None:
                process.terminate()
                await process.wait()
        output.seek(0)
        print(f"\n== {name}: {time.time() - begun:.0f} s", flush=True)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    if process.returncode:
        raise Failed(f"{name} failed (exit status {process.returncode})")


class Failed(Exception):
    """A step's exit status is not 0."""


if __name__ == "__main__":
    main()
