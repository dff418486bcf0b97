"""Which attention a prediction rests on: attention weights times the gradient in them."""

from dataclasses import dataclass

import numpy as np

from bertzoo.analysis.outputs import Output, inputs_of, numbers, output_of
from bertzoo.analysis.taps import attending, gradient_of
from bertzoo.tasks.task import Task


@dataclass(frozen=True)
class AttentionGradient:
    """What each attention weight adds to a number that a model gives for a text, to first order.

    scores: float64 (layers, heads, tokens, tokens), from the token of a row to that of a column. Layers are counted as
    attention is applied; the mask decoder of DeBERTa applies its last block twice more. names, word_names, word_of: as
    in `AttentionMap`.
    """

    scores: np.ndarray
    names: tuple[str, ...]
    word_names: tuple[str, ...]
    word_of: np.ndarray

    def by_word(self) -> "AttentionGradient":
        """The same between words: the sum over the pieces of both."""
        member = (self.word_of[:, None] == np.arange(len(self.word_names))).astype("float64")
        scores = member.T @ self.scores @ member
        return AttentionGradient(scores, self.word_names, self.word_names, np.arange(len(self.word_names)))

    def by_head(self) -> np.ndarray:
        """The derivative of the output in a factor of what each head gives, at 1: (layers, heads). Its size, mean over
        texts, is how much a head matters (Michel et al. 2019, equation 3)."""
        return self.scores.sum(axis=(-1, -2))


def gradient_times_attention(task: Task, text, output: Output) -> AttentionGradient:
    """Attention weights times the gradient of an output in them (Barkan et al. 2021, section 3, without their ReLU).

    Attention alone tells where a head looks, not whether what it sees there matters.

    Args:
        task: A task with a tokenizer.
        text: A string, or two of them for a task that reads pairs.
        output: Which number of the task's output: a class, as an int, or (token, class) and the like.

    Raises:
        ValueError: There is no such output, or no tokenizer.
    """
    inputs, pieces = inputs_of(task, text)
    with attending(task.backbone) as seen:
        output_of(task, inputs, output)
    weights = [numbers(layer) for layer in seen]

    def shifted(additions):
        with attending(task.backbone, additions):
            return output_of(task, inputs, output)

    found = gradient_of(task, shifted)([np.zeros(layer.shape, "float32") for layer in weights])
    scores = np.concatenate([weight * slope for weight, slope in zip(weights, found)])
    return AttentionGradient(scores, *pieces[:3])
