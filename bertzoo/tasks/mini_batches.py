"""Vectors of a large batch, computed in mini-batches, so that memory is that of one of them (Gao et al. 2021).

The vectors are those of the whole batch, dropout included, and so is the gradient: the backward pass computes each
mini-batch anew.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.layers.slices import cut_into_slices, map_slices, slice_sizes
from bertzoo.types import Tensor


def check_mini_batch_size(size: Any) -> None:
    """Refuses what is no `mini_batch_size`.

    Raises:
        ValueError: It is no positive whole number, or there are several devices.
    """
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise ValueError(f"mini_batch_size must be a whole number of at least 1. Received: {size!r}.")
    if keras.distribution.distribution() is not None:
        raise ValueError(
            f"mini_batch_size must be None where a keras.distribution is set. Received: {size}. Leave one of them out: "
            "devices divide the memory of a batch among them too."
        )


def map_mini_batches(function: Callable[[dict], Tensor], inputs: Mapping[str, Tensor], mini_batch_size: int) -> Tensor:
    """The function of each mini-batch of a batch of texts or tuples of texts, joined.

    Args:
        function: Inputs of a mini-batch, with `first_text`, the number of its first text in the batch -> (examples, …).
        inputs: Those of the batch, (batch, columns, length) or (batch, length) each. With `packing` they have
            `first_texts` (mini-batches,) too, since no row may hold texts of two mini-batches; see `PackedDataset`.
        mini_batch_size: The most examples of a mini-batch.

    Raises:
        ValueError: The batch is packed in another way.
    """
    inputs = dict(inputs)
    num_examples, *columns, length = ops.shape(inputs["token_ids"])
    first_texts, packing = inputs.pop("first_texts", None), inputs.pop("packing", None)
    if first_texts is None and packing is not None:
        raise ValueError(
            "packed batches must have first_texts, the first text of each mini-batch. Received: none. Make the data "
            f"set after compile(mini_batch_size={mini_batch_size!r})."
        )
    if first_texts is None:
        count, size = slice_sizes(num_examples, mini_batch_size)
        first_texts = ops.arange(count, dtype="int32") * (size * math.prod(columns))
    else:
        count = ops.shape(first_texts)[0]
        size = (num_examples + count - 1) // count
    slices = {name: cut_into_slices(x, count, size) for name, x in inputs.items()}
    if packing is not None:
        rows, row_length = ops.shape(packing)
        # Tokens and rows are counted from the beginning of the mini-batch. Those that fill the last one up have none.
        packing = ops.reshape(packing, (count, rows // count, row_length))
        slices["packing"] = ops.maximum(packing - (first_texts * length)[:, None, None], -1)
        first_tokens = ops.arange(count, dtype="int32") * (rows // count * row_length)
        first_tokens = ops.reshape(first_tokens, (-1, *[1] * (len(columns) + 1)))
        slices["text_starts"] = ops.maximum(slices["text_starts"] - first_tokens, 0)
    slices["first_text"] = first_texts
    names = list(slices)
    outputs = map_slices(lambda *one: function(dict(zip(names, one))), list(slices.values()))
    return ops.reshape(outputs, (-1, *ops.shape(outputs)[2:]))[:num_examples]
