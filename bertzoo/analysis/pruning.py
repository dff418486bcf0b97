"""Heads taken out for good, and what that costs (Michel et al. 2019, section 4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np

from bertzoo.analysis.ablation import check_head
from bertzoo.analysis.pieces import encoder_of
from bertzoo.layers.disentangled import FirstDisentangledAttention


@dataclass(frozen=True)
class Pruning:
    """heads: pairs (block, head) in the order in which they were taken out. scores: float64 (heads + 1,), before any
    was, then after each."""

    heads: tuple[tuple[int, int], ...]
    scores: np.ndarray

    @property
    def before(self) -> float:
        """The score with all heads."""
        return float(self.scores[0])

    @property
    def after(self) -> float:
        """The score without those heads."""
        return float(self.scores[-1])


def prune_heads(model, heads: Sequence[tuple[int, int]], score: Callable[[], float]) -> Pruning:
    """Takes heads out one after another, in this order, for good.

    Both what a head adds (its rows of the output kernel) and what it carries (its part of the values) become 0, from
    where no gradient leads back: training leaves it out, and so does whoever loads the saved files. The tensors keep
    their shapes, which is what lets any program load them, so that nothing gets faster.

    Args:
        model: An `Encoder` or a task; it is changed.
        heads: Pairs (block, head), both from 0. A block that several layers share (ALBERT) loses a head in all of them.
        score: Gives the score of the model as it is when called. Called heads + 1 times.

    Raises:
        ValueError: There is no such block or head, or an adapter or quantization is part of its kernel. Nothing was
            taken out then.
    """
    encoder, order = encoder_of(model), [(int(block), int(head)) for block, head in heads]
    for block, head in order:
        check_head(encoder, block, head)
    scores = [float(score())]
    for block, head in order:
        _take_out(encoder.blocks[block].attention, head)
        scores.append(float(score()))
    return Pruning(tuple(order), np.array(scores))


def most_needless(importance: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The places (block, head) of the `count` smallest numbers of (blocks, heads), smallest first."""
    order = np.argsort(importance, axis=None, kind="stable")[:count]
    return [(int(block), int(head)) for block, head in zip(*np.unravel_index(order, np.shape(importance)))]


def _take_out(attention, head: int) -> None:
    size = attention.hidden_size // attention.num_heads
    own = slice(head * size, (head + 1) * size)
    values = slice(2 * attention.hidden_size + own.start, 2 * attention.hidden_size + own.stop)
    if isinstance(attention, FirstDisentangledAttention):  # a head's query, key and value side by side
        values = slice((3 * head + 2) * size, (3 * head + 3) * size)
        _clear(attention.value_bias, own)
    _clear(attention.output_dense.kernel, own)
    _clear(attention.qkv.kernel, (slice(None), values))
    if attention.qkv.bias is not None:
        _clear(attention.qkv.bias, values)


def _clear(weight: keras.Variable, part) -> None:
    values = np.array(keras.ops.convert_to_numpy(weight.value))
    values[part] = 0
    weight.assign(values)
