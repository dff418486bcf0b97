"""Multi-head self-attention (Vaswani et al. 2017, section 3.2) with one fused projection for query, key and value."""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from bertzoo.accelerator import ampere_or_later
from bertzoo.layers.dropout import dropout
from bertzoo.layers.initialization import build_dense
from bertzoo.layers.linear import is_plain_for, kept_bias, linear
from bertzoo.layers.own_key import OwnKey

# Added to scores at padding: far below any score, yet finite, so that a row of padding alone gives no NaN.
MASKED = -1e30


class AttentionMask(NamedTuple):
    """What may be attended to, in the forms that the backends' kernels take.

    mask: bool (batch, 1, 1, length). lengths: int32 (batch,), the number of real tokens, where it is known that all
    padding is at the end of a row; else None.
    """

    mask: Any
    lengths: Any = None


def make_attention_mask(padding_mask, lengths=None) -> AttentionMask | None:
    """A padding mask, int or bool (batch, length), made ready once for all blocks; None stays None."""
    return None if padding_mask is None else AttentionMask(ops.cast(padding_mask, "bool")[:, None, None, :], lengths)


def as_attention_mask(attention_mask) -> AttentionMask | None:
    """The same, from a bare bool mask that broadcasts to (batch, heads, length, length) too."""
    if attention_mask is None or isinstance(attention_mask, AttentionMask):
        return attention_mask
    # Keras's files make a list of it.
    return (
        AttentionMask(*attention_mask) if isinstance(attention_mask, (list, tuple)) else AttentionMask(attention_mask)
    )


@keras.saving.register_keras_serializable("bertzoo")
class SelfAttention(OwnKey):
    """(batch, length, hidden) -> (batch, length, hidden).

    Args:
        hidden_size: Width of the input and the output.
        num_heads: Number of heads; divides `hidden_size`.
        attention_dropout: Share of attention weights dropped in training. Above 0, the fused path is left in training.
        initializer_range: Standard deviation of the initial kernels.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        attention_dropout: float = 0.0,
        initializer_range: float = 0.02,
        name: str = "attention",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if hidden_size % num_heads:
            raise ValueError(f"hidden_size must be a multiple of num_heads; they are {hidden_size} and {num_heads}.")
        self.hidden_size, self.num_heads = hidden_size, num_heads
        self.attention_dropout, self.initializer_range = attention_dropout, initializer_range
        self.qkv = keras.layers.Dense(3 * hidden_size, name="qkv", dtype=self.dtype_policy)
        self.output_dense = keras.layers.Dense(hidden_size, name="output", dtype=self.dtype_policy)

    def build(self, input_shape):
        build_dense(self, self.qkv, self.hidden_size, self.initializer_range)
        build_dense(self, self.output_dense, self.hidden_size, self.initializer_range)

    def call(
        self,
        x,
        attention_mask=None,
        position_bias=None,
        key=None,
        return_attention: bool = False,
        query=None,
        training=None,
    ):
        """(batch, length, hidden), or as long as `query`.

        Args:
            x: (batch, length, hidden).
            attention_mask: The result of `make_attention_mask`, or a bool array that broadcasts to (batch, heads,
                queries, keys), True where a query may attend to a key; None to attend everywhere.
            position_bias: What the family made of relative positions for all blocks; here, added to the scaled scores:
                broadcastable to (batch, heads, length, length).
            key: Dropout key, int32 (2,); where none comes, one of its own in training.
            return_attention: Also return the weights (batch, heads, length, length); leaves the fused path.
            query: Another stream of vectors (batch, queries, hidden) that attends to x, in place of x itself.
        """
        key = self.key_of(key, training)
        context, weights = self.context(x, attention_mask, position_bias, key, return_attention, query)
        out = linear(self.output_dense, context)
        return (out, weights) if return_attention else out

    def context(self, x, attention_mask, position_bias, key, return_attention: bool, query):
        """What `call` projects, (batch, length, hidden), and the weights, None where they are not asked for."""
        attention_mask = as_attention_mask(attention_mask)
        explicit = return_attention or (key is not None and self.attention_dropout > 0)
        if not explicit and query is None and position_bias is None:
            context = self._in_one_kernel(x, attention_mask)
            if context is not None:
                return context, None
        queries, key_, value = self.project(x) if query is None else self._project_apart(query, x)
        bias = self.score_bias(queries, key_, position_bias, key)
        if explicit:
            context, weights = self._explicit(queries, key_, value, attention_mask, bias, key)
        else:
            context, weights = fused_attention(queries, key_, value, attention_mask, bias, query is not None), None
        context = ops.reshape(context, (ops.shape(x)[0], ops.shape(queries)[1], self.hidden_size))
        return context, weights if return_attention else None

    def _in_one_kernel(self, x, attention_mask):
        """The context, where a kernel makes it of the projection as it is; else None."""
        if keras.backend.backend() != "jax" or type(self) is not SelfAttention:
            return None
        attention_mask = as_attention_mask(attention_mask)
        known = attention_mask is None or attention_mask.lengths is not None
        if not (known and x.dtype in ("bfloat16", "float16") and is_plain_for(self.qkv, x) and self.qkv.use_bias):
            return None
        from bertzoo.kernels.pallas import on_each_device, rows_for_kernels  # needs JAX

        if rows_for_kernels(x.shape) is None:
            return None
        from bertzoo.kernels.short_attention import fits, short_attention  # needs Triton

        batch, length, _ = x.shape
        if not fits(length, self.hidden_size // self.num_heads):
            return None
        lengths = ops.full((batch,), length, "int32") if attention_mask is None else attention_mask.lengths
        product = ops.matmul(x, ops.convert_to_tensor(self.qkv.kernel))
        call = on_each_device(lambda *arrays: short_attention(*arrays, self.num_heads), (True, False, True))
        return call(product, kept_bias(self.qkv), lengths)

    def project(self, x):
        """(batch, length, hidden) -> queries, keys and values, each (batch, length, heads, head size)."""
        return self._parts(x, 0, 3)

    def _project_apart(self, query, x):
        """The queries of one stream, and the keys and values of another."""
        if type(self) is not SelfAttention:  # families lay the projection out, or add to it, in ways of their own
            return self.project(query)[0], *self.project(x)[1:]
        return *self._parts(query, 0, 1), *self._parts(x, 1, 3)

    def _parts(self, x, first: int, last: int):
        """Of queries, keys and values those from `first` to before `last`, in one product."""
        count = last - first
        columns = None if count == 3 else slice(first * self.hidden_size, last * self.hidden_size)
        shape = (ops.shape(x)[0], ops.shape(x)[1], count, self.num_heads, self.hidden_size // self.num_heads)
        product = ops.reshape(linear(self.qkv, x, columns), shape)
        # Indexed, not split: 3 % faster on an H100 under XLA.
        return tuple(product[:, :, i] for i in range(count))

    def score_bias(self, query, key, position_bias, dropout_key):
        """What is added to the scaled scores: None, or broadcastable to (batch, heads, length, length)."""
        return position_bias

    def _explicit(self, query, key_, value, attention_mask, bias, dropout_key):
        weights = attention_weights(query, key_, attention_mask, bias)
        dropped = dropout(weights, self.attention_dropout, dropout_key, salt=0)
        return ops.einsum("bhts,bshk->bthk", ops.cast(dropped, value.dtype), value), weights

    def get_config(self):
        names = ("hidden_size", "num_heads", "attention_dropout", "initializer_range")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def attention_weights(query, key, attention_mask=None, bias=None):
    """softmax(q·k / √head size + bias) in float32.

    Queries and keys are (batch, length, heads, head size), the weights (batch, heads, length, length).
    """
    query = query * (1.0 / math.sqrt(query.shape[-1]))
    scores = ops.cast(ops.einsum("bthk,bshk->bhts", query, key), "float32")
    if bias is not None:
        scores = scores + ops.cast(bias, "float32")
    if attention_mask is not None:
        scores = ops.where(as_attention_mask(attention_mask).mask, scores, MASKED)
    return ops.softmax(scores, axis=-1)


def fused_attention(query, key, value, attention_mask: AttentionMask | None = None, bias=None, apart: bool = False):
    """Attention without its weights, by the backend's own kernel: (batch, length, heads, head size) three times -> the
    same. `apart`: the queries are of another stream, of any length, and all of them real."""
    backend, attention_mask = keras.backend.backend(), as_attention_mask(attention_mask)
    if backend == "jax" and _has_kernel(query):
        return _jax_attention(query, key, value, attention_mask, bias, apart)
    if backend == "torch":
        return _torch_attention(query, key, value, attention_mask, bias)
    # Nor has TensorFlow one.
    weights = attention_weights(query, key, attention_mask, bias)
    return ops.einsum("bhts,bshk->bthk", ops.cast(weights, value.dtype), value)


def _jax_attention(query, key, value, attention_mask, bias, apart):
    if attention_mask is not None and attention_mask.lengths is not None and _has_cudnn(query):
        return _cudnn_attention(query, key, value, attention_mask.lengths, bias, apart)
    mask = attention_mask
    if attention_mask is not None:  # cuDNN's kernel takes masks of full size only
        mask = ops.broadcast_to(attention_mask.mask, (query.shape[0], 1, query.shape[1], key.shape[1]))
    return ops.dot_product_attention(query, key, value, bias=bias, mask=mask)


def _has_kernel(query) -> bool:
    """Whether JAX's attention is for such queries. It asks for a product of float16 that only GPUs have; there it may
    be cuDNN's, which has nothing for a single query, and which no export of unknown sizes can hold."""
    import jax

    known = all(isinstance(size, int) for size in query.shape[:2])
    return known and query.shape[1] != 1 and (query.dtype != "float16" or jax.default_backend() == "gpu")


def _has_cudnn(query) -> bool:
    """Whether cuDNN's fused kernel takes such heads, here."""
    size = query.shape[-1]
    return query.dtype in ("bfloat16", "float16") and size % 8 == 0 and size <= 128 and ampere_or_later()


def _cudnn_attention(query, key, value, lengths, bias, apart):
    """By the examples' lengths: cuDNN then skips the padding and reads no mask, 4 % of a training step of BERT-base on
    an H200."""
    import jax

    asking, asked = query.shape[1], key.shape[1]
    odd, odd_keys = asking % 2, asked % 2  # it has no gradient for odd lengths
    if odd:
        query = ops.pad(query, ((0, 0), (0, 1), (0, 0), (0, 0)))
    if odd_keys:
        key, value = (ops.pad(part, ((0, 0), (0, 1), (0, 0), (0, 0))) for part in (key, value))
    if bias is not None:
        bias = ops.pad(ops.cast(bias, query.dtype), ((0, 0), (0, 0), (0, odd), (0, odd_keys)))
    out = jax.nn.dot_product_attention(
        query,
        key,
        value,
        bias,
        query_seq_lengths=ops.full_like(lengths, asking) if apart else lengths,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return out[:, :asking]


def _torch_attention(query, key, value, attention_mask, bias):
    # One additive mask, and views instead of the copies that `keras.ops.dot_product_attention` makes.
    from torch.nn.functional import scaled_dot_product_attention

    mask = _additive(attention_mask, bias, query.dtype)
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)


def _additive(attention_mask, bias, dtype):
    import torch

    if attention_mask is None:
        return None if bias is None else bias.to(dtype)
    lowest = torch.finfo(dtype).min / 2  # a score is added to it, which must not overflow in float16
    if bias is None:
        return torch.zeros_like(attention_mask.mask, dtype=dtype).masked_fill(~attention_mask.mask, lowest)
    return bias.to(dtype).masked_fill(~attention_mask.mask, lowest)
