"""The training step on TensorFlow: Keras compiles the whole step."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bertzoo.training.calls import ThreadSafeModel as TensorFlowModel

__all__ = ["TensorFlowModel", "TensorFlowOptimizer"]


class TensorFlowOptimizer(keras.optimizers.Optimizer):
    """The base of `AdamW` under TensorFlow: dense gradients, and clipping in float32.

    An embedding's gradient arrives as `IndexedSlices`, one slice for each token. Added slice by slice, a repeated token
    enters the second moment as a sum of squares where it must be the square of the sum, and clipping sees another norm.
    """

    def apply(self, grads: Sequence, trainable_variables: Any = None) -> None:
        dense = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        super().apply(dense, trainable_variables)

    def _clip_gradients(self, grads):
        # Keras multiplies by a float32 scale, which TensorFlow refuses where some of the variables are bfloat16.
        return super()._clip_gradients([tf.cast(g, tf.float32) for g in grads])
