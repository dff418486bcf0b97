"""Layer normalisation (Ba et al. 2016), its means in float32 whatever the policy."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("bertzoo")
class LayerNorm(keras.layers.Layer):
    """(…, width) -> (…, width): mean 0 and variance 1 over the last axis, then scale `gamma` and, with `center`, shift
    `beta`."""

    def __init__(self, epsilon: float = 1e-12, center: bool = True, name: str = "norm", **kwargs):
        super().__init__(name=name, **kwargs)
        self.epsilon, self.center = epsilon, center
        self.beta = None

    def build(self, input_shape):
        width = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones", autocast=False)
        if self.center:
            self.beta = self.add_weight(name="beta", shape=width, initializer="zeros", autocast=False)

    def call(self, x):
        dtype = keras.backend.standardize_dtype(x.dtype)
        half = dtype in ("bfloat16", "float16")
        if keras.backend.backend() == "torch":
            # Its one fused kernel for it takes gamma and beta in the type of x only: rounded, where that is half.
            beta = None if self.beta is None else ops.cast(self.beta, dtype)
            return ops.layer_normalization(x, ops.cast(self.gamma, dtype), beta, epsilon=self.epsilon)
        if half:
            x = ops.cast(x, "float32")
        mean = ops.mean(x, axis=-1, keepdims=True)
        # One pass over memory is exact enough for half-precision inputs and saves a twentieth of a training step;
        # in float32 its cancellation would show.
        if half:
            variance = ops.maximum(ops.mean(ops.square(x), axis=-1, keepdims=True) - ops.square(mean), 0.0)
            x = x - mean
        else:
            x = x - mean
            variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
        x = x * ops.rsqrt(variance + self.epsilon)
        x = x * ops.cast(self.gamma, x.dtype)
        return ops.cast(x if self.beta is None else x + ops.cast(self.beta, x.dtype), dtype)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon, "center": self.center}
