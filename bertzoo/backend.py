"""The Keras backend: its selection and settings, its device, and two differences that layers need not know."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
import zlib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.types import Tensor

if TYPE_CHECKING:  # `import bertzoo` takes a sixth of the time without
    import numpy as np

# In the order of preference: the fastest for training first.
_MODULES = {"jax": "jax", "torch": "torch", "tensorflow": "tensorflow"}
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


def prepare_backend() -> None:
    """Sets `KERAS_BACKEND` where nothing has chosen a backend yet.

    The environment wins. `keras.json` comes next, unless it names a backend that is not installed: Keras writes
    "tensorflow" into it on its first import, whatever is installed. Otherwise an installed backend is taken.

    Raises:
        ImportError: No backend is installed, or the one that the environment names is not.
    """
    _set_for_cpus()
    if "keras" in sys.modules:
        return
    _keep_compiled()
    installed = [name for name, module in _MODULES.items() if importlib.util.find_spec(module)]
    named = os.environ.get("KERAS_BACKEND")
    if named:
        if named in _MODULES and named not in installed:
            raise ImportError(f"the backend {named!r} is not installed: pip install {named}.")
        return
    if not installed:
        raise ImportError(
            "bertzoo needs one of JAX, PyTorch or TensorFlow and found none: pip install jax (or torch, or tensorflow)."
        )
    if _from_keras_json() not in installed:
        os.environ["KERAS_BACKEND"] = installed[0]


def disable_tensorflow_grappler() -> None:
    """Disables TensorFlow's graph optimizer "grappler", if TensorFlow is loaded and computes on a CPU.

    It takes half of the first step after tracing (2.2 of 4.3 CPU seconds for 6 layers of 256) and makes steps no faster
    (0.47 s with and without). The setting holds for the whole process, so only our own programs call this: the command
    line, the course, the tests.
    """
    tf = sys.modules.get("tensorflow")
    if tf is not None and all(device.device_type == "CPU" for device in tf.config.list_physical_devices()):
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def with_dense_gradient(table: Tensor) -> Tensor:
    """The table, (rows, width), so that the gradient of look-ups in it is dense.

    On TensorFlow the gradient of a look-up lists a row once per occurrence, and Keras's Adam would square each
    occurrence instead of their sum.
    """
    import keras

    return table * 1.0 if keras.backend.backend() == "tensorflow" else table


def as_backend_constant(array: np.ndarray) -> Tensor:
    """A constant array for a layer: a tensor on PyTorch, whose compiler does not support NumPy arrays."""
    import keras

    return keras.ops.convert_to_tensor(array) if keras.backend.backend() == "torch" else array


def _from_keras_json() -> str | None:
    home = os.environ.get("KERAS_HOME")
    try:
        path = (Path(home) if home else Path.home() / ".keras") / "keras.json"
        return json.loads(path.read_text()).get("backend")
    except (OSError, ValueError, AttributeError, RuntimeError):  # the last where there is no home directory
        return None


def _set_for_cpus() -> None:
    # PyTorch's OpenMP threads spin while they wait and run up to 10 times slower where cores are few or shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if _cores() <= 4:
        os.environ.setdefault("OMP_NUM_THREADS", str(_cores()))
    # TensorFlow uses oneDNN by default only on CPUs with AVX-512 VNNI. With AVX2 alone, a training step of 6 layers of
    # 256 took up to 1.7 times as long without it.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def _keep_compiled() -> None:
    # JAX compiles each shape in every process. With a cache on disk, a second run starts in a fraction of the time. The
    # cache is separate for each type of CPU, since machines may share a home directory.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # not set by an earlier call
        try:
            root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        except RuntimeError:  # no home directory, no cache
            return
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(root / "bertzoo" / "jax" / _processor())
    os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(2**30))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")


def _processor() -> str:
    """A name for this type of CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()}-{zlib.crc32(features.encode()):08x}"


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- the device


def accelerator_name() -> str | None:
    """The accelerator's name, such as "NVIDIA H100 80GB HBM3"; None on a CPU."""
    import keras

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
    return accelerator_name() or f"CPU, {_cores()} cores"


def keras_versions_text() -> str:
    """The versions of Keras and of its backend."""
    import keras

    backend = keras.backend.backend()
    return f"keras {keras.__version__}, {backend} {import_module(backend).__version__}"


def has_ampere_gpu_or_later() -> bool:
    """Whether JAX computes on an NVIDIA GPU that cuDNN's attention and Triton's bfloat16 support."""
    import jax

    if jax.default_backend() != "gpu":
        return False
    # "9.0" on an H100; AMD's begin with letters.
    generation = str(getattr(jax.devices()[0], "compute_capability", "")).partition(".")[0]
    return generation.isdigit() and int(generation) >= 8


def peak_flops_per_second(dtype: str) -> float | None:
    """Peak operations per second of the first device; None if unknown, as for CPUs and float32."""
    if "16" not in str(dtype):
        return None
    name = accelerator_name() or ""
    return next((peak for device, peak in PEAKS.items() if device in name), None)
