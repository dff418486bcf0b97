"""What Keras's backend computes on."""

import importlib.metadata
import os

import keras


def accelerator() -> str | None:
    """Its name, such as "NVIDIA H100 80GB HBM3"; None where the backend computes on the CPU."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return None if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
    if backend == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else None
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(devices[0]).get("device_name") if devices else None


def device_name() -> str:
    """The accelerator's name, or "CPU" with the number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return accelerator() or f"CPU, {cores} cores"


def keras_versions() -> str:
    """The versions of Keras and of its backend."""
    backend = keras.backend.backend()
    return f"keras {importlib.metadata.version('keras')}, {backend} {importlib.metadata.version(backend)}"


def ampere_or_later() -> bool:
    """Whether JAX computes on an NVIDIA GPU that cuDNN's attention and Triton's bfloat16 are made for."""
    import jax

    if jax.default_backend() != "gpu":
        return False
    # "9.0" on an H100; AMD's begin with letters.
    generation = str(getattr(jax.devices()[0], "compute_capability", "")).partition(".")[0]
    return generation.isdigit() and int(generation) >= 8
