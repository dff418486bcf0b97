"""JAX's fused attention, cuDNN's where it takes what there is."""

import jax
from keras import ops

from bertzoo.accelerator import ampere_or_later
from bertzoo.dispatch import faster
from bertzoo.layers.attention import AttentionMask
from bertzoo.types import Tensor


@faster("dot_product_attention", backend="jax")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: AttentionMask | None = None,
    bias: Tensor | None = None,
    cross: bool = False,
) -> Tensor | None:
    if not _has_kernel(query):
        return None
    if attention_mask is not None and attention_mask.lengths is not None and _has_cudnn(query):
        return _cudnn_attention(query, key, value, attention_mask.lengths, bias, cross)
    mask = attention_mask
    if attention_mask is not None:  # cuDNN's kernel takes masks of full size only
        mask = ops.broadcast_to(attention_mask.mask, (query.shape[0], 1, query.shape[1], key.shape[1]))
    return ops.dot_product_attention(query, key, value, bias=bias, mask=mask)


def _has_kernel(query) -> bool:
    """Whether JAX's attention is for such queries. It asks for a product of float16 that only GPUs have; there it may
    be cuDNN's, which has nothing for a single query, and which no export of unknown sizes can hold."""
    known = all(isinstance(size, int) for size in query.shape[:2])
    return known and query.shape[1] != 1 and (query.dtype != "float16" or jax.default_backend() == "gpu")


def _has_cudnn(query) -> bool:
    """Whether cuDNN's fused kernel takes such heads, here."""
    size = query.shape[-1]
    return query.dtype in ("bfloat16", "float16") and size % 8 == 0 and size <= 128 and ampere_or_later()


def _cudnn_attention(query, key, value, lengths, bias, cross):
    """By the examples' lengths: cuDNN then skips the padding and reads no mask, 4 % of a training step of BERT-base on
    an H200."""
    queries = query.shape[1]
    odd, odd_keys = queries % 2, key.shape[1] % 2  # it has no gradient for odd lengths
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
        query_seq_lengths=ops.full_like(lengths, queries) if cross else lengths,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return out[:, :queries]
