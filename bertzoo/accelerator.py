"""The device that Keras's backend computes on."""

import importlib.metadata
import os

import keras

# Dense bfloat16 (T4, V100: float16) operations per second from the manufacturers' data sheets, by a substring of the
# device's name.
PEAKS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
    "V100": 125e12,
    "T4": 65e12,
    "4090": 165e12,
    "3090": 71e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
}


def accelerator() -> str | None:
    """The accelerator's name, such as "NVIDIA H100 80GB HBM3"; None on a CPU."""
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
    """Whether JAX computes on an NVIDIA GPU that cuDNN's attention and Triton's bfloat16 support."""
    import jax

    if jax.default_backend() != "gpu":
        return False
    # "9.0" on an H100; AMD's begin with letters.
    generation = str(getattr(jax.devices()[0], "compute_capability", "")).partition(".")[0]
    return generation.isdigit() and int(generation) >= 8


def peak_flops(dtype: str) -> float | None:
    """Peak operations per second of the first device; None if unknown, as for CPUs and float32."""
    if "16" not in str(dtype):
        return None
    name = accelerator() or ""
    return next((peak for device, peak in PEAKS.items() if device in name), None)
