"""Several devices for one run: each takes a part of every batch, all hold the whole model."""

from collections.abc import Sequence

import keras

from bertzoo.pretraining.rows import Shape


def use_devices(count: int, shapes: Sequence[Shape] = ()) -> None:
    """Lets `count` devices share each batch from now on; 1 changes nothing.

    JAX compiles one program for all of them, in which means over the batch are means over the whole batch and dropout
    is drawn by the row's number in it, so that the run is that of one device. `keras.distribution` does this on JAX
    alone; on TensorFlow and PyTorch several devices take a training loop of one's own.

    Raises:
        ValueError: The backend is not JAX, there are fewer devices, or a batch can't be parted evenly.
    """
    if count == 1:
        return
    if keras.backend.backend() != "jax":
        raise ValueError(f"several devices need the JAX backend; it is {keras.backend.backend()}.")
    found = keras.distribution.list_devices()
    if not 1 <= count <= len(found):
        raise ValueError(f"{count} devices were asked for; there are {len(found)}: {', '.join(found)}.")
    uneven = [shape.batch_size for shape in shapes if shape.batch_size % count]
    if uneven:
        raise ValueError(f"batch_size must be a multiple of the {count} devices; it is {uneven[0]}.")
    strategy = keras.distribution.DataParallel(devices=found[:count], auto_shard_dataset=False)
    keras.distribution.set_distribution(strategy)
