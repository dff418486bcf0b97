"""What computes here, by name and version."""

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
