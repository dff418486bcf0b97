"""What `AdamW` does differently under JAX: moments come from the host, and all vectors' norms are taken at once."""

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
        """As Keras's, but all vectors' squares are summed together.

        What a small batch waits for is the number of kernels, and a tenth of BERT-base's were sums of one vector each.
        """
        if not self.global_clipnorm:
            return grads
        wide = [gradient.astype(jnp.float32) for gradient in grads if gradient is not None]
        vectors = [gradient.ravel() for gradient in wide if gradient.ndim < 2]
        arrays = [gradient for gradient in wide if gradient.ndim > 1]
        if vectors:
            # The barrier keeps XLA from summing each on its own after all.
            arrays.append(jax.lax.optimization_barrier(jnp.concatenate(vectors)))
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(array)) for array in arrays))
        # Less itself, a norm is 0, or NaN if it is infinite: what overflowed must not look like a gradient of 0.
        scale = self.global_clipnorm / jnp.maximum(norm, self.global_clipnorm) + (norm - norm)
        return [None if gradient is None else gradient * scale for gradient in grads]


class HostZeros(keras.initializers.Initializer):
    """Zeros that are copied to the device, not made there."""

    def __call__(self, shape, dtype=None):
        return jax.device_put(np.zeros(shape, dtype))
