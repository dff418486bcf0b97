"""ModernBERT's heads: every one has a dense layer and a normalisation before its last layer (Warner et al. 2024)."""

import keras
from keras import ops

from bertzoo.layers.activations import activation
from bertzoo.layers.dropout import dropout
from bertzoo.layers.heads import ClassificationHead, MaskedLMHead
from bertzoo.layers.initialization import build_dense
from bertzoo.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable("bertzoo")
class NormedHead(ClassificationHead):
    """(…, hidden) -> (…, labels) logits in float32: dense, activation, LayerNorm, dropout, dense.

    Args:
        num_labels, dropout_rate, dense_activation: As ClassificationHead's.
        use_bias, norm_bias: Whether the first dense layer, and the normalisation, have biases.
        layer_norm_eps: Added to the variance.
        dense_range: Standard deviation of the initial kernel of the first dense layer.
    """

    def __init__(
        self,
        *args,
        use_bias: bool = False,
        norm_bias: bool = False,
        layer_norm_eps: float = 1e-5,
        dense_range: float = 0.02,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.use_bias, self.norm_bias = use_bias, norm_bias
        self.layer_norm_eps, self.dense_range = layer_norm_eps, dense_range
        self.norm = LayerNorm(layer_norm_eps, norm_bias, dtype=self.dtype_policy)

    def build(self, input_shape):
        width = input_shape[-1]
        self.dense = keras.layers.Dense(width, use_bias=self.use_bias, name="dense", dtype=self.dtype_policy)
        build_dense(self, self.dense, width, self.dense_range)
        self.norm.build(input_shape)
        build_dense(self, self.logits, width, self.initializer_range)

    def call(self, x, key=None, training=None):
        key = self.key_of(key, training)
        x = self.norm(activation(self.dense_activation)(self.dense(x)))
        return self.logits(ops.cast(dropout(x, self.dropout_rate, key, salt=1), "float32"))

    def get_config(self):
        names = ("use_bias", "norm_bias", "layer_norm_eps", "dense_range")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable("bertzoo")
class BiaslessMaskedLMHead(MaskedLMHead):
    """As MaskedLMHead, whose dense layer and normalisation may lack biases; the decoder has one.

    Args:
        use_bias, norm_bias: Whether the dense layer, and the normalisation, have biases.
        args, kwargs: MaskedLMHead's.
    """

    def __init__(self, *args, use_bias: bool = False, norm_bias: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.use_bias, self.norm_bias = use_bias, norm_bias
        self.dense.use_bias, self.norm.center = use_bias, norm_bias

    def get_config(self):
        return {**super().get_config(), "use_bias": self.use_bias, "norm_bias": self.norm_bias}
