"""Which words a prediction rests on: integrated gradients, and occlusion."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bertzoo.analysis.outputs import Output, inputs_of, numbers, output_of, repeated
from bertzoo.analysis.taps import embedded, gradient_of
from bertzoo.tasks.task import Task

TOLERANCE, DOUBLINGS = 0.01, 5


@dataclass(frozen=True)
class Attribution:
    """How much each token of a text adds to a number that a model gives for it.

    scores: float64 (tokens,). names: what the tokens are called. word_names, word_of: the words, and the number of each
    token's (tokens,). value: what the model gives for the text. base: for the text with all its words masked; with
    integrated gradients the scores sum to value - base.
    """

    scores: np.ndarray
    names: tuple[str, ...]
    word_names: tuple[str, ...]
    word_of: np.ndarray
    value: float
    base: float

    def by_word(self) -> "Attribution":
        """The same for words: the sum over their pieces."""
        scores = np.bincount(self.word_of, self.scores, len(self.word_names))
        places = np.arange(len(scores))
        return Attribution(scores, self.word_names, self.word_names, places, self.value, self.base)


def integrated_gradients(task: Task, text, output: Output, *, steps: int = 32, batch_size: int = 16) -> Attribution:
    """Each token's share of the difference that a text's words make to an output (Sundararajan et al. 2017, section 3).

    (x - x₀) · ∫ ∂output/∂x along the straight way from x₀ to x, summed over a token's vector, where x is what the
    embeddings make of the text, and x₀ of the same row with the mask token (the pad token where the vocabulary has
    none) in place of the text's own. The integral is Gauss and Legendre's sum over points of the way.

    Args:
        task: A task with a tokenizer.
        text: A string, or two of them for a task that reads pairs.
        output: Which number of the task's output: a class, as an int, or (token, class) and the like.
        steps: Points on the way at first. They are doubled, at most five times, until the scores sum to value - base
            within 1 %.
        batch_size: Points computed at once.

    Raises:
        ValueError: There is no such output, or no tokenizer, or `steps` or `batch_size` is below 1.
    """
    if min(steps, batch_size) < 1:
        raise ValueError(f"steps and batch_size must be at least 1; they are {steps!r} and {batch_size!r}.")
    inputs, pieces = inputs_of(task, text)
    blank = _masked(task, inputs, ~pieces.added)
    value, base = (float(numbers(output_of(task, which, output))[0]) for which in (inputs, blank))
    end, start = (_embed(task, which) for which in (inputs, blank))

    def along(tensors):
        with embedded(task.backbone, tensors[0]):
            return output_of(task, repeated(inputs, len(tensors[0])), output)

    gradient = gradient_of(task, along)
    for doubling in range(DOUBLINGS + 1):
        slope = _mean(gradient, start, end, steps * 2**doubling, batch_size)
        scores = ((end - start)[0] * slope).sum(axis=-1)
        if abs(scores.sum() - (value - base)) <= TOLERANCE * abs(value - base):
            break
    return Attribution(scores, *pieces[:3], value, base)


def _mean(gradient: Callable, start: np.ndarray, end: np.ndarray, steps: int, batch_size: int) -> np.ndarray:
    """The mean of a gradient in vectors (rows, length, hidden) over the way: float64 (length, hidden)."""
    places, weights = np.polynomial.legendre.leggauss(steps)  # for the way from -1 to 1
    total = np.zeros_like(end[0])
    for begin in range(0, steps, batch_size):
        part = slice(begin, begin + batch_size)
        points = (start + (places[part, None, None] + 1) / 2 * (end - start)).astype("float32")
        (found,) = gradient([points])
        total += np.tensordot(weights[part] / 2, found.astype("float64"), axes=1)
    return total


def occlusion(task: Task, text, output: Output, *, batch_size: int = 32) -> Attribution:
    """How much an output falls when a word is hidden: its pieces get the mask token (the pad token where the vocabulary
    has none), and share the fall evenly (Zeiler and Fergus 2014, section 4.2, on words).

    What a tokenizer adds around the text stays and scores 0. Arguments and errors as `integrated_gradients`'.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; it is {batch_size!r}.")
    inputs, pieces = inputs_of(task, text)
    words = [pieces.word_of == word for word in np.unique(pieces.word_of[~pieces.added])]
    hidden = [np.zeros_like(pieces.added), ~pieces.added, *words]
    ids = np.concatenate([_masked(task, inputs, places)["token_ids"] for places in hidden])
    found: list[float] = []
    for begin in range(0, len(ids), batch_size):
        part = ids[begin : begin + batch_size]
        found += numbers(output_of(task, {**repeated(inputs, len(part)), "token_ids": part}, output)).tolist()
    scores = np.zeros(len(pieces.added))
    for places, without in zip(words, found[2:]):
        scores[places] = (found[0] - without) / places.sum()
    return Attribution(scores, *pieces[:3], found[0], found[1])


def _masked(task: Task, inputs, places: np.ndarray) -> dict[str, np.ndarray]:
    tokenizer = task.tokenizer
    mask = task.pad_id if tokenizer.mask_id is None else tokenizer.mask_id
    return {**inputs, "token_ids": np.where(places, mask, inputs["token_ids"]).astype("int32")}


def _embed(task: Task, inputs) -> np.ndarray:
    return numbers(task.backbone.embeddings(inputs["token_ids"], inputs["segment_ids"], inputs["padding_mask"]))
