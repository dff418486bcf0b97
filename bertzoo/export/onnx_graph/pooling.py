"""Pooling as nodes of an ONNX graph: from an encoder's tokens to one vector for each row."""

import numpy as np

from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.tokens import Tokens
from bertzoo.layers.attention import MASKED
from bertzoo.layers.heads import Pooling
from bertzoo.layers.splade import SpladePooling

LEAST = np.float32(1e-9)  # the least divisor of a mean


def pool(layer: Pooling, graph: Graph, tokens: Tokens, x: str, counted: str) -> str:
    """(tokens, hidden) -> (batch, modes · hidden).

    Args:
        layer: The pooling.
        graph, tokens: The graph, and its tokens.
        x: The encoder's output.
        counted: float (batch, length), 1 at the tokens that count.
    """
    pooled = Pooled(graph, tokens, x, counted)
    vectors = [pooled.attention(layer) if mode == "attention" else getattr(pooled, mode)() for mode in layer.modes]
    return vectors[0] if len(vectors) == 1 else graph.op("Concat", *vectors, axis=-1)


def splade(layer: SpladePooling, graph: Graph, tokens: Tokens, logits: str) -> str:
    """(tokens, vocabulary) -> (batch, vocabulary).

    Args:
        layer: The pooling.
        graph, tokens: The graph, and its tokens.
        logits: Those of the masked-LM head.
    """

    def activate(x: str) -> str:
        for _ in range(2 if layer.activation == "log1p_relu" else 1):
            x = graph.op("Log", graph.op("Add", graph.op("Relu", x), np.float32(1)))
        return x

    if layer.pooling == "max":
        return activate(Pooled(graph, tokens, logits, tokens.real).max())
    return Pooled(graph, tokens, activate(logits), tokens.real).sum()


class Pooled:
    """The poolings of `bertzoo.layers.heads.Pooling`, by their names.

    Args:
        graph, tokens, x, counted: As of `pool`.
    """

    def __init__(self, graph: Graph, tokens: Tokens, x: str, counted: str):
        self.graph, self.counted = graph, counted
        self.x = tokens.pad(x)
        self.is_counted = self.graph.op("Greater", counted, np.float32(0))
        length = self.graph.op("Squeeze", tokens.length)
        self.position = self.graph.op("Cast", self.graph.op("Range", np.int64(0), length, np.int64(1)), to=1)
        self.length = self.graph.op("Cast", tokens.length, to=1)

    def _sum(self, weights: str) -> str:
        """Σ weight · vector: (batch, length) -> (batch, hidden)."""
        rows = self.graph.op("Unsqueeze", weights, [1])
        return self.graph.op("Squeeze", self.graph.op("MatMul", rows, self.x), [1])

    def _total(self, weights: str) -> str:
        return self.graph.op("Max", self.graph.op("ReduceSum", weights, [1], keepdims=1), LEAST)

    def _of_highest(self, order: str) -> str:
        """The token of each row with the highest number, which must be unique."""
        is_highest = self.graph.op("Equal", order, self.graph.op("ReduceMax", order, [1], keepdims=1))
        return self._sum(self.graph.op("Cast", is_highest, to=1))

    def cls(self) -> str:
        first = self.graph.op("Sub", self.length, self.position)
        return self._of_highest(self.graph.op("Where", self.is_counted, first, self.graph.op("Neg", self.position)))

    def lasttoken(self) -> str:
        last = self.graph.op("Add", self.position, np.float32(1))
        return self._of_highest(self.graph.op("Where", self.is_counted, last, self.graph.op("Neg", self.position)))

    def max(self) -> str:
        is_counted = self.graph.op("Unsqueeze", self.is_counted, [2])
        x = self.graph.op("Where", is_counted, self.x, np.float32(MASKED))
        return self.graph.op("ReduceMax", x, [1], keepdims=0)

    def sum(self) -> str:
        return self._sum(self.counted)

    def mean(self) -> str:
        return self.graph.op("Div", self._sum(self.counted), self._total(self.counted))

    def mean_sqrt_len_tokens(self) -> str:
        return self.graph.op("Div", self._sum(self.counted), self.graph.op("Sqrt", self._total(self.counted)))

    def weightedmean(self) -> str:
        place = self.graph.op("Add", self.position, np.float32(1))
        weights = self.graph.op("Mul", self.counted, place)
        return self.graph.op("Div", self._sum(weights), self._total(weights))

    def attention(self, layer: Pooling) -> str:
        vector = self.graph.weight(layer.attention)
        scores = self.graph.op("MatMul", self.x, vector)
        scores = self.graph.op("Where", self.is_counted, scores, np.float32(MASKED))
        return self._sum(self.graph.op("Softmax", scores, axis=1))
