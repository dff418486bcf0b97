"""Logits of entities for label names that a prompt holds: of spans of words (GLiNER, Zaratiana et al. 2024), or of the
first, last and inner words of entities (GLiNER multi-task, Stepanov and Shtopko 2024)."""

from typing import Any

import keras
from keras import ops

from bertzoo.layers.base import DropoutLayer, HostTruncatedNormal, build_dense
from bertzoo.layers.functional import apply_dense, dropout
from bertzoo.layers.lstm import BidirectionalLSTM
from bertzoo.random import fold_in
from bertzoo.types import Tensor

SPANS, TOKENS = "markerV0", "token_level"
INNER = 4  # the hidden layer of a perceptron is so many times as wide as its output


def _initial_range(width: int) -> float:
    """The standard deviation of PyTorch's initial weights for so many inputs."""
    return (3 * width) ** -0.5


@keras.saving.register_keras_serializable("bertzoo")
class Perceptron(DropoutLayer):
    """(…, in) -> (…, units): dense, ReLU, dropout, dense; the hidden layer has four times as many units.

    Args:
        units: The width of the output.
        dropout_rate: Fraction of the hidden layer's elements dropped.
        name: The layer's name.
    """

    def __init__(self, units: int, dropout_rate: float = 0.0, name: str = "perceptron", **kwargs):
        super().__init__(name=name, **{**kwargs, "dtype": "float32"})
        self.units, self.dropout_rate = units, dropout_rate
        self.first = keras.layers.Dense(INNER * units, name="first", dtype="float32")
        self.second = keras.layers.Dense(units, name="second", dtype="float32")

    def build(self, input_shape: Any) -> None:
        for dense, width in ((self.first, input_shape[-1]), (self.second, INNER * self.units)):
            build_dense(self, dense, width, _initial_range(width))

    def call(self, x: Tensor, key: Tensor | None = None, training: bool | None = None) -> Tensor:
        key = self.resolve_dropout_key(key, training)
        return apply_dense(self.second, dropout(ops.relu(apply_dense(self.first, x)), self.dropout_rate, key))


class _Scorer(DropoutLayer):
    """The base of both scorers, with the weights of a perceptron of `in` inputs that is computed in parts.

    Args:
        width: That of words and labels.
        dropout_rate: Fraction of the elements of hidden layers dropped.
        name: The layer's name.
    """

    def __init__(self, width: int, dropout_rate: float = 0.0, name: str = "scorer", **kwargs):
        super().__init__(name=name, **{**kwargs, "dtype": "float32"})
        self.width, self.dropout_rate = width, dropout_rate

    def _add_perceptron(self, inputs: int, units: int) -> None:
        for name, size, out in (("first", inputs, INNER * self.width), ("second", INNER * self.width, units)):
            initializer = HostTruncatedNormal(_initial_range(size), f"{self.path}/{name}_kernel")
            kernel = self.add_weight(name=f"{name}_kernel", shape=(size, out), initializer=initializer)
            setattr(self, f"{name}_kernel", kernel)
            setattr(self, f"{name}_bias", self.add_weight(name=f"{name}_bias", shape=(out,), initializer="zeros"))


@keras.saving.register_keras_serializable("bertzoo")
class SpanScorer(_Scorer):
    """Words (batch, words, width) and labels (batch, labels, width) -> logits (batch, words, max_span_width, labels).

    Element [b, i, k, c] is the logit of the span from word i to word i + k for label c; those of spans that reach
    beyond the text mean nothing. A span is the perceptron of its first and last words' vectors (Zaratiana et al. 2024,
    section 2).

    Args:
        width, dropout_rate, name: See `_Scorer`.
        max_span_width: Words of the longest span.
    """

    def __init__(self, width: int, max_span_width: int = 12, dropout_rate: float = 0.0, name: str = "scorer", **kwargs):
        super().__init__(width, dropout_rate, name, **kwargs)
        self.max_span_width = max_span_width
        self.start, self.end, self.label = (
            Perceptron(width, dropout_rate, name=part) for part in ("start", "end", "label")
        )

    def build(self, input_shape: Any) -> None:
        for layer in (self.start, self.end, self.label):
            layer.build((None, None, self.width))
        self._add_perceptron(2 * self.width, self.width)

    def call(self, words: Tensor, labels: Tensor, key: Tensor | None = None, training: bool | None = None) -> Tensor:
        key = self.resolve_dropout_key(key, training)
        keys = [None if key is None else fold_in(key, number) for number in range(3 + self.max_span_width)]
        starts, ends = ops.relu(self.start(words, key=keys[0])), ops.relu(self.end(words, key=keys[1]))
        # The product of a pair with the first kernel is the sum of two products, computed once for each word.
        starts = ops.matmul(starts, self.first_kernel[: self.width]) + self.first_bias
        ends = ops.matmul(ends, self.first_kernel[self.width :])
        count = ops.shape(words)[1]
        ends = ops.pad(ends, [[0, 0], [0, self.max_span_width - 1], [0, 0]])
        # A span's vector times that of a label, with the second kernel taken to the labels, which are fewer than spans.
        labels = self.label(labels, key=keys[2])
        factors = ops.matmul(self.second_kernel, ops.transpose(labels, (0, 2, 1)))
        logits = []
        for k in range(self.max_span_width):  # width by width, which stays in a CPU's cache
            spans = ops.relu(starts + ends[:, k : k + count])
            logits.append(ops.matmul(dropout(spans, self.dropout_rate, keys[3 + k]), factors))
        biases = ops.matmul(labels, self.second_bias[:, None])[:, None, None, :, 0]
        return ops.stack(logits, axis=2) + biases


@keras.saving.register_keras_serializable("bertzoo")
class TokenScorer(_Scorer):
    """Words (batch, words, width) and labels (batch, labels, width) -> logits (batch, words, labels, 3).

    They say whether a word is the first, the last, or any word of an entity of a label.

    Args:
        width, dropout_rate, name: See `_Scorer`.
    """

    def __init__(self, width: int, dropout_rate: float = 0.0, name: str = "scorer", **kwargs):
        super().__init__(width, dropout_rate, name, **kwargs)
        self.word = keras.layers.Dense(2 * width, name="word", dtype="float32")
        self.label = keras.layers.Dense(2 * width, name="label", dtype="float32")

    def build(self, input_shape: Any) -> None:
        for dense in (self.word, self.label):
            build_dense(self, dense, self.width, _initial_range(self.width))
        self._add_perceptron(3 * self.width, 3)

    def call(self, words: Tensor, labels: Tensor, key: Tensor | None = None, training: bool | None = None) -> Tensor:
        key = self.resolve_dropout_key(key, training)
        word, word_factor = ops.split(apply_dense(self.word, words), 2, axis=-1)
        label, label_factor = ops.split(apply_dense(self.label, labels), 2, axis=-1)
        of_word, of_label, of_product = ops.split(self.first_kernel.value, 3, axis=0)
        products = word_factor[:, :, None] * label_factor[:, None]
        hidden = ops.matmul(products, of_product) + self.first_bias
        hidden = hidden + ops.matmul(word, of_word)[:, :, None] + ops.matmul(label, of_label)[:, None]
        hidden = dropout(ops.relu(hidden), self.dropout_rate, key)
        return ops.matmul(hidden, self.second_kernel) + self.second_bias


@keras.saving.register_keras_serializable("bertzoo")
class EntityHead(DropoutLayer):
    """An encoder's vectors of words and labels -> logits of entities: a projection where the widths differ, LSTMs over
    the words, and a `SpanScorer` or `TokenScorer`.

    Args:
        span_mode: "markerV0" for spans, "token_level" for first, last and inner words.
        width: The width after the projection.
        max_span_width: Words of the longest span.
        num_lstms: The number of LSTMs, one upon the other.
        dropout_rate: Fraction of the elements of the scorer's hidden layers dropped.
        name: The layer's name.
    """

    def __init__(
        self,
        span_mode: str,
        width: int,
        max_span_width: int = 12,
        num_lstms: int = 1,
        dropout_rate: float = 0.0,
        name: str = "entities",
        **kwargs,
    ):
        super().__init__(name=name, **{**kwargs, "dtype": "float32"})
        self.span_mode, self.width, self.max_span_width = span_mode, width, max_span_width
        self.num_lstms, self.dropout_rate = num_lstms, dropout_rate
        self.projection: keras.layers.Layer | None = None
        self.lstms = [BidirectionalLSTM(width // 2, name=f"lstm_{i}") for i in range(num_lstms)]
        scorer = SpanScorer(width, max_span_width, dropout_rate) if span_mode == SPANS else None
        self.scorer = scorer or TokenScorer(width, dropout_rate)

    def build(self, input_shape: Any) -> None:
        if input_shape[-1] != self.width:
            self.projection = keras.layers.Dense(self.width, name="projection", dtype="float32")
            build_dense(self, self.projection, input_shape[-1], _initial_range(input_shape[-1]))
        for layer in (*self.lstms, self.scorer):
            layer.build((None, None, self.width))

    def call(
        self,
        words: Tensor,
        labels: Tensor,
        word_positions: Tensor,
        word_counts: Tensor,
        key: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """
        Args:
            words, labels: (batch, words, hidden) and (batch, labels, hidden).
            word_positions: int (batch, words), below 0 for words without a token, whose vectors are 0.
            word_counts: int (batch,), the words of each row.
        """
        key = self.resolve_dropout_key(key, training)
        if self.projection is not None:
            words, labels = apply_dense(self.projection, words), apply_dense(self.projection, labels)
        words = ops.where(word_positions[:, :, None] >= 0, words, 0.0)
        for layer in self.lstms:
            words = layer(words, word_counts)
        return self.scorer(words, labels, key=key)
