"""What the blocks of an encoder share about positions, as nodes of an ONNX graph that are made once."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.layers import numpy_weight
from bertzoo.export.onnx_graph.tokens import Tokens
from bertzoo.layers.attention import MASKED
from bertzoo.layers.deberta import DisentangledAttention, RelativeEmbeddings
from bertzoo.layers.relative_bias import RelativeBias, buckets_of_offsets


class Positions:
    """Relative positions of the tokens of a row.

    Args:
        graph, tokens: The graph, and its tokens.
        layer: The encoder's `position_bias`.
        max_length: The longest row.
    """

    def __init__(self, graph: Graph, tokens: Tokens, layer: keras.layers.Layer | None, max_length: int):
        self.graph, self.tokens, self.layer, self.max_length = graph, tokens, layer, max_length
        self._made: dict[Any, str] = {}

    def bias(self) -> str | None:
        """MPNet's bias of all scores, (1, heads, length, length); None where the family has none."""
        return self._once("bias", self._relative_bias) if isinstance(self.layer, RelativeBias) else None

    def window(self, width: int) -> str:
        """A bias that masks keys farther away than `width`, (1, 1, length, length)."""
        return self._once(("window", width), lambda: self._window(width))

    def rotate(self, x: str, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> str:
        """Turns (tokens, hidden) by angles; cosines and sines are (positions, head size / 2)."""
        graph = self.graph
        # Each token as a row of its own: a row may be no longer than the positions.
        columns = self._once("columns", lambda: graph.op("Unsqueeze", self.tokens.columns, [1]))
        caches = [graph.constant(np.asarray(cache, "float32"), "rotary") for cache in (cos, sin)]
        rows = graph.op("Unsqueeze", x, [1])
        turned = graph.op("RotaryEmbedding", rows, columns, *caches, interleaved=int(interleaved))
        return graph.op("Squeeze", turned, [1])

    def table(self) -> np.ndarray | None:
        """DeBERTa's table of relative positions, (2 · span, hidden); None where the encoder has none."""
        layer = self.layer
        if not isinstance(layer, RelativeEmbeddings):
            return None
        table = numpy_weight(layer.table)
        if layer.norm is None:
            return table
        centred = table - table.mean(axis=1, keepdims=True)
        scale = numpy_weight(layer.norm.gamma) / np.sqrt((centred**2).mean(axis=1, keepdims=True) + layer.norm.epsilon)
        return centred * scale + numpy_weight(layer.norm.beta)

    def distance_rows(self, layer: DisentangledAttention) -> str:
        """The rows of that table for the distances -length to length - 1, int64 (2 · length,)."""
        return self._once(("rows", layer.max_distance, layer.num_buckets), lambda: self._distance_rows(layer))

    def _offsets(self) -> str:
        """Key position - query position, int64 (length, length)."""
        position = self._once("range", self.tokens.position_range)
        keys, queries = (self.graph.op("Unsqueeze", position, [axis]) for axis in (0, 1))
        return self.graph.op("Sub", keys, queries)

    def _relative_bias(self) -> str:
        graph, layer = self.graph, self.layer
        limit = np.int64(layer.max_distance)
        buckets = buckets_of_offsets(layer.num_buckets, layer.max_distance)
        by_offset = graph.array("position_bias", lambda: numpy_weight(layer.table)[buckets].T, layer)
        offset = graph.op("Max", graph.op("Min", self._once("offsets", self._offsets), limit), -limit)
        return graph.op("Unsqueeze", graph.op("Gather", by_offset, graph.op("Add", offset, limit), axis=1), [0])

    def _window(self, width: int) -> str:
        distance = self.graph.op("Abs", self._once("offsets", self._offsets))
        is_far = self.graph.op("Greater", distance, np.int64(width))
        return self.graph.op("Unsqueeze", self.graph.op("Where", is_far, np.float32(MASKED), np.float32(0)), [0, 1])

    def _distance_rows(self, layer: DisentangledAttention) -> str:
        graph, limit, length = self.graph, np.int64(layer.max_distance), self.graph.op("Squeeze", self.tokens.length)
        distance = graph.op("Range", graph.op("Neg", length), length, np.int64(1))
        index = graph.op("Add", graph.op("Max", graph.op("Min", distance, limit), -limit), limit)
        return graph.op("Gather", layer.rows.astype("int64"), index, axis=0)

    def _once(self, key: Any, make: Callable[[], str]) -> str:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]
