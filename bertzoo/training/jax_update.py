"""`AdamW` on JAX: moments are created on the host, and the gradients' norm takes few kernels."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
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

    def _clip_gradients(self, grads):
        """As Keras's, but for the order of the sum: rows of each array, then all of these and the vectors together.

        What a small batch waits for is the number of kernels, and a fifth of BERT-base's were sums of one array each.
        """
        if not self.global_clipnorm:
            return super()._clip_gradients(grads)
        squares = [jnp.square(gradient.astype(jnp.float32)) for gradient in grads if gradient is not None]
        parts = [part.ravel() if part.ndim < 2 else part.sum(axis=-1).ravel() for part in squares]
        # The barrier keeps XLA from summing each to a number after all.
        norm = jnp.sqrt(jnp.sum(jax.lax.optimization_barrier(jnp.concatenate(parts))))
        # Less itself, a norm is 0, or NaN if it is infinite: what overflowed must not look like a gradient of 0.
        scale = self.global_clipnorm / jnp.maximum(norm, self.global_clipnorm) + (norm - norm)
        return [None if gradient is None else gradient * scale for gradient in grads]


class HostZeros(keras.initializers.Initializer):
    """Zeros that are copied to the device, not made there."""

    def __call__(self, shape, dtype=None):
        return jax.device_put(np.zeros(shape, dtype))
