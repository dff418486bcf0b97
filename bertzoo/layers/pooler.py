"""The pooler: one vector for the whole input, from its first token (Devlin et al. 2019, section 3.1)."""

import keras

from bertzoo.layers.activations import activation
from bertzoo.layers.initialization import build_dense


@keras.saving.register_keras_serializable("bertzoo")
class Pooler(keras.layers.Layer):
    """(batch, length, hidden) -> (batch, hidden): activation(dense(first token))."""

    def __init__(
        self,
        hidden_size: int,
        activation: str = "tanh",
        initializer_range: float = 0.02,
        name: str = "pooler",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.hidden_size, self.activation, self.initializer_range = hidden_size, activation, initializer_range
        self.dense = keras.layers.Dense(hidden_size, name="dense", dtype=self.dtype_policy)

    def build(self, input_shape):
        build_dense(self, self.dense, self.hidden_size, self.initializer_range)

    def call(self, sequence):
        return activation(self.activation)(self.dense(sequence[:, 0]))

    def get_config(self):
        names = ("hidden_size", "activation", "initializer_range")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
