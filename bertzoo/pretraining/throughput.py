"""How much arithmetic a training step takes, and how much the device could do."""

import keras

from bertzoo.config import EncoderConfig

# Dense bfloat16 (T4, V100: float16) operations a second, from the makers' data sheets, by a part of the device's name.
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


def encoder_flops(config: EncoderConfig, length: int) -> float:
    """Multiplications and additions of one row's forward pass through an encoder's matrix products."""
    hidden = config.hidden_size
    weights = 4 * hidden**2 + 2 * hidden * config.intermediate_size
    attention = 2 * length * hidden
    factorised = config.embedding_size * hidden if config.embedding_size != hidden else 0
    return 2.0 * length * (config.num_hidden_layers * (weights + attention) + factorised)


def head_flops(config: EncoderConfig, places: int) -> float:
    """Those of a masked-LM head at `places` tokens."""
    width = config.embedding_size
    return 2.0 * places * (config.hidden_size * width + width * config.vocab_size)


def peak_flops(dtype: str) -> float | None:
    """What the first device can do a second at most; None where that is not known, as for CPUs and float32."""
    if "16" not in str(dtype):
        return None
    name = _device_name()
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def _device_name() -> str:
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.devices()[0].device_kind
    if backend == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(devices[0]).get("device_name", "") if devices else "cpu"
