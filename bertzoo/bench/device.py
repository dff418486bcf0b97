"""What computes here, by name and version."""

import importlib.metadata
import os


def processor() -> str:
    """The CPU, by the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"CPU, {cores} cores"


def device() -> str:
    """The accelerator that the backend in `KERAS_BACKEND` computes on, or the CPU."""
    backend = os.environ["KERAS_BACKEND"]
    if backend == "jax":
        import jax

        return processor() if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
    if backend == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else processor()
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else processor()


def keras_versions() -> str:
    """Keras's version and its backend's."""
    backend = os.environ["KERAS_BACKEND"]
    return f"keras {importlib.metadata.version('keras')}, {backend} {importlib.metadata.version(backend)}"
