"""PyTorch's fused attention."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from bertzoo.dispatch import faster
from bertzoo.layers.attention import AttentionMask
from bertzoo.types import Tensor


@faster("dot_product_attention", backend="torch")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: AttentionMask | None = None,
    bias: Tensor | None = None,
    cross: bool = False,
) -> Tensor | None:
    # One additive mask, and views instead of the copies that `keras.ops.dot_product_attention` makes.
    mask = _additive(attention_mask, bias, query.dtype)
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)


def _additive(attention_mask, bias, dtype):
    if attention_mask is None:
        return None if bias is None else bias.to(dtype)
    mask = attention_mask.mask
    lowest = torch.finfo(dtype).min / 2  # a score is added to it, which must not overflow in float16
    if bias is None:
        return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, lowest)
    return bias.to(dtype).masked_fill(~mask, lowest)
