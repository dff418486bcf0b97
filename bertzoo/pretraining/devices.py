"""Several devices that share each batch."""

from collections.abc import Sequence

import keras

from bertzoo._keras_hooks import has_torch_distribution
from bertzoo.pretraining.corpus_dataset import BatchSpec
from bertzoo.training.processes import num_processes


def use_devices(num_devices: int, batch_specs: Sequence[BatchSpec] = ()) -> None:
    """Distributes each batch over `num_devices` devices from now on; 1 changes nothing.

    JAX compiles one program for all devices, in which means over the batch are means over the whole batch and dropout
    depends on the example's index in it, so that the run equals that of one device.

    On PyTorch, `keras.distribution` exists from Keras 3.16 on at the earliest, and bertzoo does not use it yet; until
    then several GPUs need a custom training loop. On TensorFlow, Keras has only a prototype that it advises against;
    `tf.distribute.MirroredStrategy` around the model and `fit` is up to the caller.

    Args:
        num_devices: Number of devices.
        batch_specs: The shapes of the batches, which `num_devices` must divide.

    Raises:
        ValueError: The backend is not JAX, there are fewer devices, or a batch can't be divided evenly.
    """
    if num_devices == 1 and num_processes() == 1:
        return
    if (backend := keras.backend.backend()) != "jax":
        raise ValueError(
            f"several devices need the JAX backend. Received: {backend}, for which {_distribution_text(backend)}. Set "
            "KERAS_BACKEND=jax."
        )
    available = keras.distribution.list_devices()
    if num_processes() > 1 and num_devices != len(available):
        raise ValueError(f"several processes use all their {len(available)} devices. Received: {num_devices}.")
    if not 1 <= num_devices <= len(available):
        raise ValueError(f"expected 1 to {len(available)} devices, {', '.join(available)}. Received: {num_devices}.")
    uneven = [spec.batch_size for spec in batch_specs if spec.batch_size % num_devices]
    if uneven:
        raise ValueError(f"batch_size must be a multiple of the {num_devices} devices. Received: {uneven[0]}.")
    strategy = keras.distribution.DataParallel(devices=available[:num_devices], auto_shard_dataset=False)
    keras.distribution.set_distribution(strategy)


def _distribution_text(backend: str) -> str:
    """What the installed Keras has for several devices."""
    version = f"Keras {keras.__version__}"
    if backend == "tensorflow":
        return f"{version} has no supported keras.distribution"
    if has_torch_distribution():
        return f"{version} has keras.distribution, which bertzoo does not use yet"
    return f"{version} has no keras.distribution"
