"""The head of `EntityFinder` as nodes of an ONNX graph.

The input `token_roles` says which tokens stand for labels and which for words, `bertzoo.text.label_prompts.LABEL` and
`WORD`. Logits stand at the words' tokens, for as many labels as a prompt may have; where a row has fewer, those beyond
mean nothing. Every row needs one label and one word at least.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.layers import numpy_weight
from bertzoo.export.onnx_graph.tokens import Tokens
from bertzoo.layers.entities import EntityHead, SpanScorer
from bertzoo.layers.lstm import DIRECTIONS
from bertzoo.text.label_prompts import LABEL, WORD

# ONNX has the gates in the order input, output, forget, cell.
GATES = (0, 3, 1, 2)


class RoleTokens:
    """The tokens of one role, as padded rows.

    Args:
        graph, tokens: The graph and its tokens.
        roles: (tokens,), the role of each.
        role: The role.
    """

    def __init__(self, graph: Graph, tokens: Tokens, roles: str, role: int):
        self.graph, self.tokens = graph, tokens
        self._has_role = graph.op("Cast", graph.op("Equal", roles, np.int64(role)), to=TensorProto.INT64)
        self._found = graph.op("Reshape", graph.op("NonZero", self._has_role), [-1])
        in_rows = graph.op("Mul", tokens.pad(self._has_role), graph.op("Cast", tokens.mask, to=TensorProto.INT64))
        self.counts = graph.op("ReduceSum", in_rows, [1], keepdims=0)
        self._starts = graph.op("CumSum", self.counts, 0, exclusive=1)
        self.most = graph.op("ReduceMax", self.counts, [0], keepdims=1)

    def rows(self, x: str, width: Any) -> str:
        """(tokens, width of x) -> (batch, width, width of x); places beyond a row's last have its last token."""
        graph = self.graph
        columns = graph.op("Range", np.int64(0), width, np.int64(1))
        last = graph.op("Sub", self.counts, 1)
        columns = graph.op("Min", graph.op("Unsqueeze", columns, [0]), graph.op("Unsqueeze", last, [1]))
        places = graph.op("Max", graph.op("Add", columns, graph.op("Unsqueeze", self._starts, [1])), 0)
        return graph.op("Gather", x, graph.op("Gather", self._found, places, axis=0), axis=0)

    def at_tokens(self, x: str, shape: Sequence[int]) -> str:
        """(batch, width, …) of `rows` -> (tokens, …): those at the tokens of the role, and any others elsewhere."""
        graph = self.graph
        before = graph.op("Gather", self._starts, self.tokens.rows, axis=0)
        ranks = graph.op("Sub", graph.op("Sub", graph.op("CumSum", self._has_role, 0), 1), before)
        ranks = graph.op("Min", graph.op("Max", ranks, 0), graph.op("Sub", self.most, 1))
        places = graph.op("Add", graph.op("Mul", self.tokens.rows, self.most), ranks)
        return graph.op("Gather", graph.op("Reshape", x, [-1, *shape]), places, axis=0)


def entity_logits(layer: EntityHead, graph: Graph, tokens: Tokens, hidden: str, num_labels: int) -> tuple[str, tuple]:
    """The logits of words, (tokens, max_span_width, labels) or (tokens, labels, 3), and these sizes.

    Args:
        layer: The head.
        graph, tokens: The graph and its tokens.
        hidden: The encoder's output, (tokens, hidden).
        num_labels: The most labels of a prompt.
    """
    roles = tokens.pick(graph.op("Reshape", graph.input("token_roles", tokens.axes), [-1]))
    of_words, of_labels = (RoleTokens(graph, tokens, roles, role) for role in (WORD, LABEL))
    if layer.projection is not None:
        kernel, bias = layer.projection.kernel, layer.projection.bias
        hidden = _linear(graph, hidden, kernel, bias)
    words = of_words.rows(hidden, graph.op("Squeeze", of_words.most))
    labels = of_labels.rows(hidden, np.int64(num_labels))
    lengths = graph.op("Cast", of_words.counts, to=TensorProto.INT32)
    for lstm in layer.lstms:
        with graph.scope(lstm.name):
            words = _lstm(lstm, graph, words, lengths)
    if isinstance(layer.scorer, SpanScorer):
        logits, shape = _spans(layer.scorer, graph, words, labels, of_words.most), (layer.max_span_width, num_labels)
    else:
        logits, shape = _tokens(layer.scorer, graph, words, labels), (num_labels, 3)
    return of_words.at_tokens(logits, shape), shape


def _linear(graph: Graph, x: str, kernel: Any, bias: Any) -> str:
    return graph.op("Add", graph.op("MatMul", x, graph.weight(kernel)), graph.weight(bias))


def _constant(graph: Graph, layer: Any, name: str, value: np.ndarray) -> str:
    return graph.array(name, lambda: value, (layer, name))


def _perceptron(layer: Any, graph: Graph, x: str) -> str:
    with graph.scope(layer.name):
        hidden = graph.op("Relu", _linear(graph, x, layer.first.kernel, layer.first.bias))
        return _linear(graph, hidden, layer.second.kernel, layer.second.bias)


def _lstm(layer: Any, graph: Graph, x: str, lengths: str) -> str:
    def stacked(kind: str) -> np.ndarray:
        """The weights of both directions, their gates in ONNX's order, first axis last: (2, 4 · units, …)."""
        weights = np.stack([numpy_weight(getattr(layer, f"{direction}_{kind}")).T for direction in DIRECTIONS])
        parts = np.split(weights, 4, axis=1)
        return np.concatenate([parts[i] for i in GATES], axis=1)

    kernels = [_constant(graph, layer, kind, stacked(kind)) for kind in ("kernel", "recurrent_kernel")]
    biases = np.concatenate([stacked("bias"), stacked("recurrent_bias")], axis=1)
    bias = _constant(graph, layer, "bias", biases)
    steps = graph.op("Transpose", x, perm=[1, 0, 2])
    options = {"hidden_size": layer.units, "direction": "bidirectional"}
    outputs = graph.op("LSTM", steps, *kernels, bias, lengths, **options)
    return graph.op("Reshape", graph.op("Transpose", outputs, perm=[2, 0, 1, 3]), [0, 0, -1])


def _spans(layer: SpanScorer, graph: Graph, words: str, labels: str, count: str) -> str:
    """As `SpanScorer.call`: (batch, words, max_span_width, labels)."""
    starts, ends = (graph.op("Relu", _perceptron(part, graph, words)) for part in (layer.start, layer.end))
    kernel = numpy_weight(layer.first_kernel)
    of_start = _constant(graph, layer, "start_kernel", kernel[: layer.width])
    of_end = _constant(graph, layer, "end_kernel", kernel[layer.width :])
    starts = graph.op("Add", graph.op("MatMul", starts, of_start), graph.weight(layer.first_bias))
    ends = graph.op("Pad", graph.op("MatMul", ends, of_end), [0, 0, 0, 0, layer.max_span_width - 1, 0])
    labels = _perceptron(layer.label, graph, labels)
    factors = graph.op("MatMul", graph.weight(layer.second_kernel), graph.op("Transpose", labels, perm=[0, 2, 1]))
    logits = []
    for k in range(layer.max_span_width):
        last = graph.op("Slice", ends, [k], graph.op("Add", count, [k]), [1])
        span = graph.op("Relu", graph.op("Add", starts, last))
        logits.append(graph.op("Unsqueeze", graph.op("MatMul", span, factors), [2]))
    bias = _constant(graph, layer, "label_bias", numpy_weight(layer.second_bias)[:, None])
    biases = graph.op("Transpose", graph.op("MatMul", labels, bias), perm=[0, 2, 1])
    return graph.op("Add", graph.op("Concat", *logits, axis=2), graph.op("Unsqueeze", biases, [1]))


def _tokens(layer: Any, graph: Graph, words: str, labels: str) -> str:
    """As `TokenScorer.call`: (batch, words, labels, 3)."""
    word, word_factor = _halves(graph, words, layer.word)
    label, label_factor = _halves(graph, labels, layer.label)
    kernels = np.split(numpy_weight(layer.first_kernel), 3)
    of_word, of_label, of_product = (_constant(graph, layer, f"kernel_{i}", kernel) for i, kernel in enumerate(kernels))
    products = graph.op("Mul", graph.op("Unsqueeze", word_factor, [2]), graph.op("Unsqueeze", label_factor, [1]))
    hidden = graph.op("Add", graph.op("MatMul", products, of_product), graph.weight(layer.first_bias))
    for part, kernel, axis in ((word, of_word, 2), (label, of_label, 1)):
        hidden = graph.op("Add", hidden, graph.op("Unsqueeze", graph.op("MatMul", part, kernel), [axis]))
    return _linear(graph, graph.op("Relu", hidden), layer.second_kernel, layer.second_bias)


def _halves(graph: Graph, x: str, dense: Any) -> list[str]:
    with graph.scope(dense.name):
        return graph.op("Split", _linear(graph, x, dense.kernel, dense.bias), outputs=2, axis=-1, num_outputs=2)
