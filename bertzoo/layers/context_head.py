"""DeBERTa v3's head for spotting replaced tokens: each is judged together with the first (He et al. 2023)."""

import keras

from bertzoo.layers.heads import ClassificationHead
from bertzoo.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable("bertzoo")
class ContextHead(ClassificationHead):
    """(batch, length, hidden) -> (batch, length, labels): LayerNorm(first token + token), then a ClassificationHead.

    Args:
        layer_norm_eps: Added to the variance.
        args, kwargs: ClassificationHead's.
    """

    def __init__(self, *args, layer_norm_eps: float = 1e-7, **kwargs):
        super().__init__(*args, **kwargs)
        self.layer_norm_eps = layer_norm_eps
        self.norm = LayerNorm(layer_norm_eps, dtype=self.dtype_policy)

    def build(self, input_shape):
        super().build(input_shape)
        self.norm.build(input_shape)

    def call(self, x, key=None, training=None):
        return super().call(self.norm(x[:, :1] + x), key=key, training=training)

    def get_config(self):
        return {**super().get_config(), "layer_norm_eps": self.layer_norm_eps}
