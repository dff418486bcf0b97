"""From presets to models that are served."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.files import expand_user
from bertzoo.export import OnnxModel
from bertzoo.export.agreement import random_rows
from bertzoo.export.engine import MODEL_FILE
from bertzoo.export.in_process import export_command, export_error
from bertzoo.serving.calls import TASKS
from bertzoo.serving.metrics import Metrics
from bertzoo.serving.model import MASK_LOGITS, POOL_THREADS, ServedModel

BATCH_SECONDS = 0.05  # what a batch may take
LEAST_GAIN = 0.02  # in tokens a second, for which a batch is made twice as large
PARALLEL_EFFICIENCY = 0.8  # of threads that share a batch
FEWEST, MOST = 128, 16_384  # tokens in a batch


def name_of(preset: str) -> str:
    """What clients call a preset: the name of its directory or repository, without the path."""
    if preset.startswith("hf://"):
        return preset.removeprefix("hf://").partition("@")[0]
    return Path(preset).resolve().name


async def load_models(
    presets: Sequence[str],
    metrics: Metrics,
    report: Callable[[BaseException], None],
    *,
    int8: bool | None = None,
    threads: int | None = None,
    max_batch_tokens: int | None = None,
) -> list[ServedModel]:
    """Loads presets, or directories that `bertzoo export` wrote.

    Args:
        presets: The presets.
        metrics: What records batches.
        report: Called with errors of the models.
        int8: Whether to compute in 8 bits; where None, if an exported directory has the file for it.
        threads: Threads of a model; all cores where None.
        max_batch_tokens: Most tokens in a batch; where None, see `measure_batch_tokens`.

    Raises:
        CheckpointError: A preset can't be used, has no route for its task, or the name of another.
    """
    names = [name_of(preset) for preset in presets]
    if len(set(names)) < len(names):
        raise CheckpointError(f"presets that are served together need different names. Received: {', '.join(names)}.")
    pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="bertzoo-texts")
    models = []
    for name, preset in zip(names, presets):
        model = await load_model(preset, int8, threads)
        if model.task not in (served := sorted({task for tasks in TASKS.values() for task in tasks})):
            raise CheckpointError(f"the server has routes for {', '.join(served)}. Received: {name}, a {model.task}.")
        limit = max_batch_tokens
        if limit is None:
            limit = await asyncio.to_thread(measure_batch_tokens, model)
        observers = metrics.observe_batch, report, metrics.input_length.observe
        models.append(ServedModel(name, model, pool, limit, *observers))
    return models


async def load_model(preset: str, int8: bool | None, threads: int | None) -> OnnxModel:
    """The model of a preset, or of a directory that `bertzoo export` wrote.

    Args:
        preset: The preset; it is exported in another process, so that this one never holds Keras.
        int8, threads: As of `load_models`.

    Raises:
        CheckpointError: It can't be used.
    """
    directory = expand_user(preset)
    if (directory / MODEL_FILE).is_file():
        return await asyncio.to_thread(read_export, directory, threads, int8)
    with TemporaryDirectory(prefix="bertzoo-") as folder:
        await run_export(export_command(preset, f"{folder}/model", bool(int8)))
        return await asyncio.to_thread(read_export, Path(folder) / "model", threads, int8)


async def run_export(command: list[str]) -> None:
    """Runs the command of an export in a process of its own, which ends with this coroutine.

    Raises:
        CheckpointError: It failed.
    """
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE)
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise export_error(errors.decode("utf-8", "replace"))


def read_export(directory: Path, threads: int | None, int8: bool | None) -> OnnxModel:
    """Reads a directory that `bertzoo export` wrote; raises CheckpointError if it can't be used."""
    try:
        return OnnxModel.from_directory(directory, threads, int8)
    except ImportError:
        raise
    except Exception as error:  # ONNX Runtime has an error class of its own for each status
        raise CheckpointError(f"{directory} can't be served: {error}") from error


def measure_batch_tokens(model: OnnxModel) -> int:
    """How many tokens make the fastest batch on this machine when it does nothing else, and take `BATCH_SECONDS` at
    most; in rows of 256: shorter rows, of which attention is a smaller part, take less.

    More rows at once make better use of the cores until what is computed of them no longer fits the caches.
    """
    length = min(256, model.settings["max_length"])
    tokens, speed = 0, 0.0
    while (twice := max(256 // length * length, 2 * tokens)) <= MOST:
        seconds = _seconds_of_batch(model, twice // length, length)
        if twice / seconds < speed * (1 + LEAST_GAIN) or (tokens and seconds > BATCH_SECONDS):
            break
        tokens, speed = twice, twice / seconds
    return int(np.clip(min(tokens, BATCH_SECONDS * speed), FEWEST, MOST))


def _seconds_of_batch(model: OnnxModel, rows: int, length: int) -> float:
    """How long a batch takes."""
    rng, lengths = np.random.default_rng(0), np.full(rows, length)
    encoded = random_rows(rng, lengths, model.settings["vocab_size"], model.reads_token_roles)
    threads = model.session.get_session_options().intra_op_num_threads
    output = MASK_LOGITS if MASK_LOGITS in model.output_names else model.output_names[0]
    clock, work = [], []
    for _ in range(5):
        begun, worked = perf_counter(), process_time()
        model.run(encoded, [output])
        clock.append(perf_counter() - begun)
        work.append(process_time() - worked)
    # Beside other programs the clock tells more than the model takes; then what the cores worked for it tells better.
    return min(min(clock), min(work) / threads / PARALLEL_EFFICIENCY)
