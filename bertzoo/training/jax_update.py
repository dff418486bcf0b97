"""What `AdamW` does differently under JAX: its first moments come from the host. XLA fuses the update by itself."""

from contextlib import nullcontext

import jax
import keras
import numpy as np


class JaxUpdate:
    """Mixed into `AdamW` under JAX, before Keras's optimizer.

    XLA compiles a program for each shape of zeros that it makes, a twentieth of a second each: half of one for the
    moments of a BERT.
    """

    def _counters_device(self):
        return nullcontext()

    def add_optimizer_variables(self, trainable_variables, name, initializer="zeros"):
        if initializer == "zeros" and keras.distribution.distribution() is None:
            initializer = HostZeros()
        return super().add_optimizer_variables(trainable_variables, name, initializer)


class HostZeros(keras.initializers.Initializer):
    """Zeros that are copied to the device, not made there."""

    def __call__(self, shape, dtype=None):
        return jax.device_put(np.zeros(shape, dtype))
