"""Attribution: integrated gradients, occlusion, and attention weights times their gradient."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np

from bertzoo.analysis.hooks import make_gradient_function, record_attention_weights, replace_embeddings
from bertzoo.analysis.pieces import TextTokens, encode_with_words, iterate_padded_batches
from bertzoo.tasks.task import Task

TOLERANCE, DOUBLINGS = 0.01, 5
# An index into a task's output (batch, …): a class, or (token, class) and the like.
Output = int | Sequence[int]


@dataclass(frozen=True)
class Attribution:
    """The contribution of each token of a text to one output of a model.

    Attributes:
        scores: float64 (tokens,).
        names: The tokens.
        word_names: The words.
        word_of: (tokens,), the index of each token's word.
        value: The output for the text.
        base: The output for the text with all its words masked. Integrated gradients sum to value - base.
    """

    scores: np.ndarray
    names: tuple[str, ...]
    word_names: tuple[str, ...]
    word_of: np.ndarray
    value: float
    base: float

    def by_word(self) -> "Attribution":
        """The contribution of words: the sum over their pieces."""
        scores = np.bincount(self.word_of, self.scores, len(self.word_names))
        places = np.arange(len(scores))
        return Attribution(scores, self.word_names, self.word_names, places, self.value, self.base)


def integrated_gradients(
    task: Task, text: str | tuple[str, str], output: Output, *, steps: int = 32, batch_size: int = 16
) -> Attribution:
    """Integrated gradients (Sundararajan et al. 2017, section 3).

    (x - x₀) · ∫ ∂output/∂x along the straight line from x₀ to x, summed over a token's vector. x are the embeddings of
    the text; x₀ those of the same text with each token replaced by the mask token (the pad token if the vocabulary has
    no mask token). The integral is computed by Gauss-Legendre quadrature.

    Args:
        task: A task with a tokenizer.
        text: A string, or two strings for a task that reads pairs.
        output: Index into the task's output: a class, or (token, class) and the like.
        steps: Points of the quadrature at first. They are doubled, at most five times, until the scores sum to value -
            base within 1 %.
        batch_size: Points in a batch.

    Raises:
        ValueError: There is no such output, or no tokenizer, or `steps` or `batch_size` is below 1.
    """
    if min(steps, batch_size) < 1:
        raise ValueError(f"steps and batch_size must be at least 1. Received: {steps!r} and {batch_size!r}.")
    inputs, pieces = _encode(task, text)
    blank = _masked(task, inputs, ~pieces.added)
    value, base = (float(_to_numpy(_output(task, which, output))[0]) for which in (inputs, blank))
    end, start = (_embed(task, which) for which in (inputs, blank))

    def along(tensors):
        with replace_embeddings(task.backbone, tensors[0]):
            return _output(task, _repeat(inputs, len(tensors[0])), output)

    gradient = make_gradient_function(task, along)
    for doubling in range(DOUBLINGS + 1):
        slope = _mean(gradient, start, end, steps * 2**doubling, batch_size)
        scores = ((end - start)[0] * slope).sum(axis=-1)
        if abs(scores.sum() - (value - base)) <= TOLERANCE * abs(value - base):
            break
    return Attribution(scores, *pieces[:3], value, base)


def _mean(gradient: Callable, start: np.ndarray, end: np.ndarray, steps: int, batch_size: int) -> np.ndarray:
    """The mean of a gradient with respect to vectors (rows, length, hidden) over the line: float64 (length, hidden)."""
    places, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
    total = np.zeros_like(end[0])
    for begin in range(0, steps, batch_size):
        part = slice(begin, begin + batch_size)
        points = (start + (places[part, None, None] + 1) / 2 * (end - start)).astype("float32")
        (found,) = gradient([points])
        total += np.tensordot(weights[part] / 2, found.astype("float64"), axes=1)
    return total


def occlusion(task: Task, text: str | tuple[str, str], output: Output, *, batch_size: int = 32) -> Attribution:
    """Occlusion: the decrease of an output when a word is masked, shared evenly by its pieces (Zeiler and Fergus 2014,
    section 4.2, on words).

    Special tokens are not masked and score 0.

    Args:
        task: A task with a tokenizer.
        text: A string, or two strings for a task that reads pairs.
        output: Index into the task's output: a class, or (token, class) and the like.
        batch_size: Masked copies of the text in a batch.

    Raises:
        ValueError: There is no such output, or no tokenizer, or `batch_size` is below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1. Received: {batch_size!r}.")
    inputs, pieces = _encode(task, text)
    words = [pieces.word_of == word for word in np.unique(pieces.word_of[~pieces.added])]
    hidden = [np.zeros_like(pieces.added), ~pieces.added, *words]
    ids = np.concatenate([_masked(task, inputs, places)["token_ids"] for places in hidden])
    found: list[float] = []
    for begin in range(0, len(ids), batch_size):
        part = ids[begin : begin + batch_size]
        found += _to_numpy(_output(task, {**_repeat(inputs, len(part)), "token_ids": part}, output)).tolist()
    scores = np.zeros(len(pieces.added))
    for places, without in zip(words, found[2:]):
        scores[places] = (found[0] - without) / places.sum()
    return Attribution(scores, *pieces[:3], found[0], found[1])


def _masked(task: Task, inputs, places: np.ndarray) -> dict[str, np.ndarray]:
    mask = task.tokenizer.mask_id if task.tokenizer else None
    mask = task.data.pad_id if mask is None else mask
    return {**inputs, "token_ids": np.where(places, mask, inputs["token_ids"]).astype("int32")}


def _embed(task: Task, inputs) -> np.ndarray:
    return _to_numpy(task.backbone.embeddings(inputs["token_ids"], inputs["segment_ids"], inputs["padding_mask"]))


@dataclass(frozen=True)
class AttentionGradient:
    """The first-order contribution of each attention weight to one output of a model.

    Attributes:
        scores: float64 (layers, heads, tokens, tokens), from the token of a row to the token of a column. Layers are in
            the order in which attention is applied; the mask decoder of DeBERTa applies its last block twice more.
        names, word_names, word_of: As in `AttentionMap`.
    """

    scores: np.ndarray
    names: tuple[str, ...]
    word_names: tuple[str, ...]
    word_of: np.ndarray

    def by_word(self) -> "AttentionGradient":
        """The contribution between words: the sum over the pieces of both."""
        member = (self.word_of[:, None] == np.arange(len(self.word_names))).astype("float64")
        scores = member.T @ self.scores @ member
        return AttentionGradient(scores, self.word_names, self.word_names, np.arange(len(self.word_names)))

    def by_head(self) -> np.ndarray:
        """The derivative of the output with respect to a factor of each head's output, at 1: (layers, heads). Its mean
        absolute value over texts is a head's importance (Michel et al. 2019, equation 3)."""
        return self.scores.sum(axis=(-1, -2))


def gradient_times_attention(task: Task, text: str | tuple[str, str], output: Output) -> AttentionGradient:
    """Attention weights times the gradient of an output with respect to them (Barkan et al. 2021, section 3, without
    their ReLU).

    Attention alone shows where a head looks, not whether that affects the output.

    Args:
        task: A task with a tokenizer.
        text: A string, or two strings for a task that reads pairs.
        output: Index into the task's output: a class, or (token, class) and the like.

    Raises:
        ValueError: There is no such output, or no tokenizer.
    """
    inputs, pieces = _encode(task, text)
    with record_attention_weights(task.backbone) as seen:
        _output(task, inputs, output)
    weights = [_to_numpy(layer) for layer in seen]

    def shifted(additions):
        with record_attention_weights(task.backbone, additions):
            return _output(task, inputs, output)

    found = make_gradient_function(task, shifted)([np.zeros(layer.shape, "float32") for layer in weights])
    scores = np.concatenate([weight * slope for weight, slope in zip(weights, found)])
    return AttentionGradient(scores, *pieces[:3])


def _encode(task: Task, text) -> tuple[dict[str, np.ndarray], TextTokens]:
    """One text, or a pair, as a batch of one row, and its tokens and words."""
    first, second = (text, None) if isinstance(text, str) else text
    encoded, pieces = encode_with_words(task, [first], None if second is None else [second])
    ((_, inputs),) = iterate_padded_batches(encoded, task.data.pad_id, 1)
    return inputs, pieces[0]


def _output(task: Task, inputs, output: Output):
    """The output of each row at an index: a tensor (batch,)."""
    place = (output,) if isinstance(output, (int, np.integer)) else tuple(output)
    found = task(inputs)
    shape = getattr(found, "shape", None)
    if shape is None or len(shape) != 1 + len(place) or not all(0 <= i < n for i, n in zip(place, shape[1:])):
        given = "not a tensor" if shape is None else f"of shape (batch, {', '.join(map(str, shape[1:]))})"
        raise ValueError(f"output must be an index into the task's output, which is {given}. Received: {output!r}.")
    return found[(slice(None), *place)]


def _repeat(inputs: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """The row of a batch, repeated."""
    return {name: np.repeat(values, rows, axis=0) for name, values in inputs.items()}


def _to_numpy(tensor) -> np.ndarray:
    """A tensor as float64."""
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32")).astype("float64")
