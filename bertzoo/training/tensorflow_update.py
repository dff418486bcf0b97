"""`AdamW` on TensorFlow: dense gradients, and clipping in float32."""

from contextlib import nullcontext

import tensorflow as tf


class TensorFlowUpdate:
    """Mixed into `AdamW` under TensorFlow, before Keras's optimizer.

    An embedding's gradient arrives as `IndexedSlices`, one slice for each token. Added slice by slice, a repeated token
    enters the second moment as a sum of squares where it must be the square of the sum, and clipping sees another norm.
    """

    def _counters_device(self):
        return nullcontext()

    def apply(self, grads, trainable_variables=None) -> None:
        dense = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        super().apply(dense, trainable_variables)

    def _clip_gradients(self, grads):
        # Keras multiplies by a float32 scale, which TensorFlow refuses where some of the variables are bfloat16.
        return super()._clip_gradients([tf.cast(g, tf.float32) for g in grads])
