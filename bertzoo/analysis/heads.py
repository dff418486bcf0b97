"""Attention heads: ablation, and pruning for good (Michel et al. 2019)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import numpy as np

from bertzoo.analysis.pieces import get_encoder
from bertzoo.layers.deberta import DisentangledAttentionV1
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.task import Task


@dataclass(frozen=True)
class HeadAblation:
    """A score with all heads (`before`, a float), and without each head (`after`, float64 (blocks, heads))."""

    before: float
    after: np.ndarray

    @property
    def score_change(self) -> np.ndarray:
        """after - before: (blocks, heads). If a high score is good, the most important heads have the lowest values."""
        return self.after - self.before


@contextmanager
def ablate_heads(model: Encoder | Task, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Removes the contribution of heads while the context lasts; the weights are restored exactly.

    A head contributes its part of the context times its rows of the output kernel: these rows are set to 0. A model
    that is trained or saved within the context lacks the heads.

    Args:
        model: An `Encoder` or a task.
        heads: Pairs (block, head), both from 0. A block that several layers share (ALBERT) loses the head in all.

    Raises:
        ValueError: There is no such block or head, or an adapter or quantization is part of its kernel.
    """
    encoder = get_encoder(model)
    lost: dict[int, list[int]] = {}
    for block, head in heads:
        _check_prunable(encoder, block, head)
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


def ablate_each_head(model: Encoder | Task, score_fn: Callable[[], float]) -> HeadAblation:
    """The score of a model, and without each of its heads in turn.

    Args:
        model: An `Encoder` or a task.
        score_fn: Returns the score of the model in its present state, such as
            `lambda: classifier.evaluate(texts, labels, return_dict=True)["accuracy"]`. Called blocks × heads + 1 times.
    """
    encoder = get_encoder(model)
    before = float(score_fn())
    after = np.zeros((len(encoder.blocks), encoder.config.num_attention_heads))
    for head in np.ndindex(after.shape):
        with ablate_heads(model, [head]):
            after[head] = float(score_fn())
    return HeadAblation(before, after)


def _check_prunable(encoder: Encoder, block: int, head: int) -> None:
    """Raises `ValueError` if a head can't be removed."""
    blocks, heads = len(encoder.blocks), encoder.config.num_attention_heads
    if not (0 <= block < blocks and 0 <= head < heads):
        raise ValueError(
            f"expected a head of {blocks} blocks with {heads} heads each. Received: block {block}, head {head}."
        )
    attention = encoder.blocks[block].attention
    denses = (attention.qkv, attention.output_dense)
    if any(type(d) is not keras.layers.Dense or d.lora_enabled or d.quantization_mode is not None for d in denses):
        raise ValueError(
            f"the attention of block {block} has an adapter or is quantized; merge the adapter, or load the "
            "model without quantization."
        )


@dataclass(frozen=True)
class HeadPruning:
    """The heads (block, head) in the order of their removal, and the scores, float64 (heads + 1,), before the first and
    after each removal."""

    heads: tuple[tuple[int, int], ...]
    scores: np.ndarray

    @property
    def score_before(self) -> float:
        """The score with all heads."""
        return float(self.scores[0])

    @property
    def score_after(self) -> float:
        """The score without those heads."""
        return float(self.scores[-1])


def prune_heads(model: Encoder | Task, heads: Sequence[tuple[int, int]], score_fn: Callable[[], float]) -> HeadPruning:
    """Removes heads permanently, one after another in this order.

    A head's rows of the output kernel and its part of the values become 0, so that their gradients are 0 too: the heads
    stay removed in training and in saved files. The tensors keep their shapes, so that any program can load them, and
    nothing gets faster.

    Args:
        model: An `Encoder` or a task; it is changed.
        heads: Pairs (block, head), both from 0. A block that several layers share (ALBERT) loses the head in all.
        score_fn: Returns the score of the model in its present state. Called heads + 1 times.

    Raises:
        ValueError: There is no such block or head, or an adapter or quantization is part of its kernel. Nothing is
            removed then.
    """
    encoder, order = get_encoder(model), [(int(block), int(head)) for block, head in heads]
    for block, head in order:
        _check_prunable(encoder, block, head)
    scores = [float(score_fn())]
    for block, head in order:
        _prune(encoder.blocks[block].attention, head)
        scores.append(float(score_fn()))
    return HeadPruning(tuple(order), np.array(scores))


def least_important_heads(importance: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The `count` least important heads as pairs (block, head), the least important first.

    Args:
        importance: (blocks, heads), such as the mean absolute `AttentionGradient.by_head()` over texts.
        count: How many.
    """
    order = np.argsort(importance, axis=None, kind="stable")[:count]
    return [(int(block), int(head)) for block, head in zip(*np.unravel_index(order, np.shape(importance)))]


def _prune(attention, head: int) -> None:
    size = attention.hidden_size // attention.num_heads
    own = slice(head * size, (head + 1) * size)
    values = slice(2 * attention.hidden_size + own.start, 2 * attention.hidden_size + own.stop)
    if isinstance(attention, DisentangledAttentionV1):  # a head's query, key and value side by side
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
