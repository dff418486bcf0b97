"""What DeBERTa has besides disentangled attention: embeddings, a convolution, and heads (He et al. 2021, 2023)."""

from collections.abc import Callable

import keras
from keras import ops

from bertzoo.layers.attention import as_attention_mask
from bertzoo.layers.base import HostTruncatedNormal, build_dense
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.dense import activation
from bertzoo.layers.embeddings import Embeddings
from bertzoo.layers.heads import ClassificationHead, MaskedLMHead
from bertzoo.layers.norm import LayerNorm, add, dropout
from bertzoo.random import Salt, fold_in
from bertzoo.types import Tensor

DECODER_STEPS = 2


@keras.saving.register_keras_serializable("bertzoo")
class MaskedEmbeddings(Embeddings):
    """int (batch, length) -> float (batch, length, width), or (batch, length, projection); arguments as Embeddings'."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.dense is not None:
            self.dense.use_bias = False

    def build(self, input_shape):
        self.make_tables()
        self.make_norm(self.projection or self.width)
        if self.dense is not None:
            build_dense(self, self.dense, self.width, self.initializer_range)

    def call(self, token_ids, segment_ids=None, padding_mask=None, key=None, perturbation=None, training=None):
        """Arguments as Embeddings'."""
        key = self.key_of(key, training)
        x = ops.cast(self.sum_tables(token_ids, segment_ids), self.compute_dtype)
        x = self.normalise(x if self.dense is None else self.dense(x), perturbation)
        if padding_mask is not None:
            x = ops.where(ops.cast(padding_mask, "bool")[:, :, None], x, ops.zeros((), x.dtype))
        return dropout(x, self.hidden_dropout, key)


@keras.saving.register_keras_serializable("bertzoo")
class ConvolvedBlock(EncoderBlock):
    """(batch, length, hidden) -> (batch, length, hidden): LayerNorm(block(x) + activation(convolution(x))).

    Both the convolution's and the final result are 0 at padding.

    Args:
        kernel_size: How many tokens the convolution sees; odd.
        convolution_activation: Name of its activation.
        args, kwargs: EncoderBlock's.
    """

    supports_query_subset = False

    def __init__(self, *args, kernel_size: int = 3, convolution_activation: str = "tanh", **kwargs):
        super().__init__(*args, **kwargs)
        self.kernel_size, self.convolution_activation = kernel_size, convolution_activation
        self.convolution = keras.layers.Conv1D(
            self.hidden_size, kernel_size, padding="same", name="convolution", dtype=self.dtype_policy
        )
        self.convolution_norm = LayerNorm(self.layer_norm_eps, name="convolution_norm", dtype=self.dtype_policy)

    def build(self, input_shape):
        super().build(input_shape)
        build_dense(self, self.convolution, self.hidden_size, self.initializer_range)
        self.convolution_norm.build((None, None, self.hidden_size))

    def call(self, x, attention_mask=None, position_bias=None, key=None, return_attention: bool = False, training=None):
        """Arguments and results as EncoderBlock's."""
        key = self.key_of(key, training)
        out = super().call(x, attention_mask, position_bias, key, return_attention)
        out, weights = out if return_attention else (out, None)
        near = self.convolution(x)
        if attention_mask is not None:
            real = ops.transpose(as_attention_mask(attention_mask).mask[:, 0], (0, 2, 1))  # (batch, length, 1)
            near = ops.where(real, near, ops.zeros((), near.dtype))
        near = activation(self.convolution_activation)(dropout(near, self.hidden_dropout, key, Salt.CONVOLUTION))
        out = self.convolution_norm(add(out, near))
        if attention_mask is not None:
            out = ops.where(real, out, ops.zeros((), out.dtype))
        return (out, weights) if return_attention else out


@keras.saving.register_keras_serializable("bertzoo")
class EnhancedMaskDecoder(MaskedLMHead):
    """As MaskedLMHead, on the encoder's last block applied twice more.

    Keys and values are the block's usual input; queries are that input plus absolute positions, then the block's own
    output.

    Args:
        max_positions: Rows of the position table, which is as wide as the encoder.
        args, kwargs: MaskedLMHead's.
    """

    def __init__(self, *args, max_positions: int = 512, **kwargs):
        super().__init__(*args, **kwargs)
        self.max_positions = max_positions

    def build(self, input_shape):
        super().build(input_shape)
        initializer = HostTruncatedNormal(self.initializer_range, f"{self.path}/position")
        shape = (self.max_positions, input_shape[-1])
        self.position = self.add_weight(name="position", shape=shape, initializer=initializer, autocast=False)

    def prepare_hidden(self, x: Tensor, before: Tensor, last_block: Callable, key: Tensor | None) -> Tensor:
        length = before.shape[1]
        if length is not None and length > self.max_positions:
            raise ValueError(
                f"Expected at most {self.max_positions} tokens, the positions of this masked-LM head. Received: "
                f"{length} tokens. Truncate the texts (max_length), or take a model with more positions."
            )
        query = before + ops.cast(self.position[: ops.shape(before)[1]], before.dtype)
        for step in range(DECODER_STEPS):
            query = last_block(query, None if key is None else fold_in(key, step))
        return query


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

    def call(self, x: Tensor, key: Tensor | None = None, training: bool | None = None) -> Tensor:
        return super().call(self.norm(x[:, :1] + x), key=key, training=training)
