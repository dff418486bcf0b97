"""Heads switched off: what a model does without them (Michel et al. 2019)."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import numpy as np

from bertzoo.analysis.pieces import encoder_of
from bertzoo.models.encoder import Encoder


@dataclass(frozen=True)
class Ablation:
    """A score with all heads, and without each. `before`: float. `after`: float64 (blocks, heads)."""

    before: float
    after: np.ndarray

    @property
    def change(self) -> np.ndarray:
        """after - before: (blocks, heads). Where a high score is good, the most needed heads are the lowest."""
        return self.after - self.before


@contextmanager
def ablated(model, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Within it, heads contribute exactly nothing; after it, the weights are what they were, to the bit.

    A head's share of an attention's output is its part of the context times its rows of the output kernel: these rows
    are set to 0. What is trained or saved within it is trained or saved without the heads (transformers 5, which has no
    pruning any more, loads such a file as any other).

    Args:
        model: An `Encoder` or a task.
        heads: Pairs (block, head), both from 0. A block that several layers share (ALBERT) loses a head in all of them.

    Raises:
        ValueError: There is no such block or head, or an adapter or quantization is part of its kernel.
    """
    encoder = encoder_of(model)
    lost: dict[int, list[int]] = {}
    for block, head in heads:
        check_head(encoder, block, head)
        lost.setdefault(block, []).append(head)
    kernels = {block: encoder.blocks[block].attention.output_dense.kernel for block in lost}
    before = {block: np.array(keras.ops.convert_to_numpy(kernel.value)) for block, kernel in kernels.items()}
    size = encoder.config.head_size
    try:
        for block, kernel in kernels.items():
            values = before[block].copy()
            for head in lost[block]:
                values[head * size : (head + 1) * size] = 0
            kernel.assign(values)
        yield
    finally:
        for block, kernel in kernels.items():
            kernel.assign(before[block])


def ablate_each_head(model, score: Callable[[], float]) -> Ablation:
    """The score of a model as it is, and without each of its heads in turn.

    Args:
        model: An `Encoder` or a task.
        score: Gives the score of the model as it is when called, such as
            `lambda: classifier.evaluate(texts, labels, return_dict=True)["accuracy"]`. Called blocks × heads + 1 times.
    """
    encoder = encoder_of(model)
    before = float(score())
    after = np.zeros((len(encoder.blocks), encoder.config.num_attention_heads))
    for place in np.ndindex(after.shape):
        with ablated(model, [place]):
            after[place] = float(score())
    return Ablation(before, after)


def check_head(encoder: Encoder, block: int, head: int) -> None:
    """Raises `ValueError` where a head cannot be switched off."""
    blocks, heads = len(encoder.blocks), encoder.config.num_attention_heads
    if not (0 <= block < blocks and 0 <= head < heads):
        raise ValueError(f"there is no head {head} in block {block}: there are {blocks} blocks of {heads} heads each.")
    attention = encoder.blocks[block].attention
    denses = (attention.qkv, attention.output_dense)
    if any(type(d) is not keras.layers.Dense or d.lora_enabled or d.quantization_mode is not None for d in denses):
        raise ValueError(
            f"the attention of block {block} has an adapter or is quantized; merge the adapter, or load the "
            "model without quantization."
        )
