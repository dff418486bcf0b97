"""The accelerator that Keras's backend computes on."""

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
