"""Several processes that train one model, each with its part of every batch (JAX).

Every process runs the same program on the same data in the same order. Only the first one writes files.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import jax_coordination_client

HEARTBEAT_SECONDS = 20  # without a sign of life, until a process counts as lost
SHUTDOWN_SECONDS = 10
ERROR_KEY = "bertzoo/error"
POLL_SECONDS = 1


def start_processes(
    coordinator_address: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> int:
    """Connects this process with the others of a run; before JAX computes anything.

    A process that ends without having finished ends all others within a minute.

    Args:
        coordinator_address: Host and port of process 0, such as "10.0.0.1:1234".
        num_processes: Number of processes.
        process_id: This process's number, from 0. What is left out is taken from the environment, as JAX finds it under
            Slurm, Open MPI or Kubernetes.

    Returns:
        The number of devices of all processes, for `use_devices`.

    Raises:
        ValueError: The backend is not JAX, or the environment lacks what is left out.
    """
    if keras.backend.backend() != "jax":
        raise ValueError(f"several processes need the JAX backend. Received: {keras.backend.backend()}.")
    import jax

    jax.distributed.initialize(
        coordinator_address,
        num_processes,
        process_id,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        shutdown_timeout_seconds=SHUTDOWN_SECONDS,
    )
    threading.Thread(target=_end_with_others, daemon=True).start()
    return jax.device_count()


def num_processes() -> int:
    """The number of processes of the run."""
    if keras.backend.backend() != "jax":
        return 1
    import jax

    return jax.process_count()


def process_index() -> int:
    """This process's number, from 0."""
    if num_processes() == 1:
        return 0
    import jax

    return jax.process_index()


def is_writer() -> bool:
    """Whether this process writes files."""
    return process_index() == 0


def dataset_of_process(dataset: Any) -> Any:
    """A data set of the batches of the whole run -> that of this process's rows of them; of a single process, itself.

    Raises:
        ValueError: It is no PyDataset; or, while reading: a batch can't be divided evenly.
    """
    if num_processes() == 1 or dataset is None or isinstance(dataset, _OwnRows):
        return dataset
    if not isinstance(dataset, keras.utils.PyDataset):
        raise ValueError(f"several processes need a PyDataset, as tasks make of texts. Received: {type(dataset)}.")
    return _OwnRows(dataset)


class _OwnRows(keras.utils.PyDataset):
    """This process's rows of the batches of another data set: of arrays (batch, …), (batch / processes, …)."""

    def __init__(self, dataset: keras.utils.PyDataset):
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return keras.tree.map_structure(_select_rows, self.dataset[index])

    def on_epoch_begin(self) -> None:
        self.dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.dataset.on_epoch_end()


def _select_rows(array: np.ndarray | None) -> np.ndarray | None:
    if array is None:
        return None
    size, rest = divmod(len(array), num_processes())
    if rest:
        raise ValueError(
            f"the rows of each batch must be a multiple of the {num_processes()} processes. Received: {len(array)}, "
            "perhaps in the last batch: leave rows out, or take another batch_size."
        )
    return array[process_index() * size : (process_index() + 1) * size]


def gather(*values: int) -> np.ndarray:
    """The values of all processes, int (processes, values). All must call it."""
    if num_processes() == 1:
        return np.array([values])
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(np.array(values, "int32")))


@contextmanager
def writer_first() -> Iterator[None]:
    """A context that the first process leaves before the others enter, for reading folders that it may repair.

    Within it nothing may be computed on all devices, such as assigning to a variable.
    """
    if not is_writer():
        gather(0)
    yield
    if is_writer():
        gather(0)


@contextmanager
def end_together() -> Iterator[None]:
    """A context whose errors end all processes, each with the message of the one in which it was raised."""
    try:
        yield
    except BaseException as error:
        if num_processes() > 1:
            _report(error)
        raise
    gather(0)  # none ends while another still writes


def _report(error: BaseException) -> None:
    client = jax_coordination_client()
    if client is None or _error_text(client) is not None:  # a context within another has reported it
        return
    if _is_of_jax(error):
        # Perhaps the connection to a lost process broke. JAX then ends this one, and names the lost one, in this time.
        time.sleep(2 * HEARTBEAT_SECONDS)
    text = f"process {process_index()} failed: {type(error).__name__}: {error}"
    client.key_value_set(ERROR_KEY, text, allow_overwrite=True)
    _print(text)  # JAX may end this process before the error arrives at the caller
    time.sleep(2 * POLL_SECONDS)  # until the others have read it: the first process keeps it


def _print(text: str) -> None:
    print(f"bertzoo: {text}", file=sys.stderr, flush=True)


def _is_of_jax(error: BaseException | None) -> bool:
    import jax

    # Some of its errors are others of Python's, with a status in front: "UNKNOWN: Gloo AllGather failed".
    if isinstance(error, jax.errors.JaxRuntimeError) or re.match("[A-Z_]+: ", str(error)):
        return True
    return error is not None and _is_of_jax(error.__cause__ or error.__context__)


def _error_text(client: Any) -> str | None:
    """The message of the process that failed first, if one did."""
    try:
        return client.key_value_try_get(ERROR_KEY)
    except Exception as error:
        if "NOT_FOUND" in str(error):
            return None
        raise


def _end_with_others() -> None:
    client, text = jax_coordination_client(), None
    while text is None:
        time.sleep(POLL_SECONDS)  # in Python, where the interpreter may end the thread
        try:
            text = _error_text(client)
        except Exception:
            return  # the run has ended
    if not text.startswith(f"process {process_index()} "):
        _print(text)
        time.sleep(2 * POLL_SECONDS)
        os._exit(1)
