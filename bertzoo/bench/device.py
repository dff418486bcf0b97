"""What computes here, by name and version, and how much memory that took."""

import importlib.metadata
import os

import keras

from bertzoo.accelerator import accelerator


def processor() -> str:
    """The CPU, by the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"CPU, {cores} cores"


def device() -> str:
    """What the backend computes on: its accelerator, or the CPU."""
    return accelerator() or processor()


def keras_versions() -> str:
    """Keras's version and its backend's."""
    backend = keras.backend.backend()
    return f"keras {importlib.metadata.version('keras')}, {backend} {importlib.metadata.version(backend)}"


def peak_memory(backend: str) -> int:
    """The most bytes that this process held so far: of the device where it tells, otherwise of the host."""
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
