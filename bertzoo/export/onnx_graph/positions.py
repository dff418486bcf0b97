"""What the blocks of an encoder share about positions, as nodes of an ONNX graph that are made once."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.layers import numpy_weight
from bertzoo.export.onnx_graph.tokens import Tokens
from bertzoo.layers.attention import MASKED
from bertzoo.layers.deberta import DisentangledAttention, RelativeEmbeddings
from bertzoo.layers.relative_bias import RelativeBias, buckets_of_offsets


class HeadLayout:
    """Tokens (tokens, 3 · hidden) as rows of heads (batch, heads, length, head size), and back.

    Args:
        graph, tokens: The graph, and its tokens.
        num_heads, head_size: Number of attention heads, and their width.
    """

    def __init__(self, graph: Graph, tokens: Tokens, num_heads: int, head_size: int):
        self.graph, self.num_heads, self.head_size = graph, num_heads, head_size
        head = np.arange(num_heads)
        # Projections are (tokens · 3 · heads) vectors of a head's size.
        begin = graph.op("Mul", graph.op("Unsqueeze", tokens.token_at, [1]), np.int64(3 * num_heads))
        self._split = [graph.op("Add", begin, (head + part * num_heads)[None, :, None]) for part in range(3)]
        # And rows (batch · heads · length) of them.
        row = graph.op("Mul", graph.op("Unsqueeze", tokens.rows, [1]), np.int64(num_heads))
        of_head = graph.op("Mul", graph.op("Add", row, head[None]), tokens.length)
        self._join = graph.op("Add", of_head, graph.op("Unsqueeze", tokens.columns, [1]))

    def split(self, projection: str) -> list[str]:
        """Queries, keys and values."""
        vectors = self.graph.op("Reshape", projection, [-1, self.head_size])
        return [self.graph.op("Gather", vectors, places, axis=0) for places in self._split]

    def join(self, rows: str) -> str:
        """(batch, heads, length, head size) -> (tokens, hidden)."""
        vectors = self.graph.op("Gather", self.graph.op("Reshape", rows, [-1, self.head_size]), self._join, axis=0)
        return self.graph.op("Reshape", vectors, [-1, self.num_heads * self.head_size])


class Positions:
    """Relative positions of the tokens of a row, and the layout of heads.

    Args:
        graph, tokens: The graph, and its tokens.
        encoder: The encoder.
    """

    def __init__(self, graph: Graph, tokens: Tokens, encoder: Any):
        config = encoder.config
        self.graph, self.tokens, self.layer, self.max_length = graph, tokens, encoder.position_bias, config.max_length
        self._made: dict[Any, str] = {}
        self.heads = HeadLayout(graph, tokens, config.num_attention_heads, config.head_size)

    def mask(self) -> str:
        """What masks padding, (batch, 1, 1, length)."""
        return self._once("mask", self._mask)

    def bias(self) -> str:
        """The mask, with MPNet's bias of all scores (batch, heads, length, length) where the family has one."""
        if not isinstance(self.layer, RelativeBias):
            return self.mask()
        return self._once("bias", lambda: self.graph.op("Add", self._relative_bias(), self.mask()))

    def window(self, width: int) -> str:
        """The mask with keys farther away than `width`, (batch, 1, length, length)."""
        return self._once(("window", width), lambda: self.graph.op("Add", self._window(width), self.mask()))

    def rotate(self, x: str, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> str:
        """Turns (batch, heads, length, head size) by angles; cosines and sines are (positions, head size / 2)."""
        caches = [self.graph.constant(np.asarray(cache, "float32"), "rotary") for cache in (cos, sin)]
        places = self._once("places", self._places)
        return self.graph.op("RotaryEmbedding", x, places, *caches, interleaved=int(interleaved))

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

    def _mask(self) -> str:
        graph = self.graph
        added = graph.op("Where", graph.op("Cast", self.tokens.mask, to=9), np.float32(0), np.float32(MASKED))
        return graph.op("Unsqueeze", added, [1, 2])

    def _places(self) -> str:
        """0, 1, … of each row, int64 (batch, length)."""
        position = self._once("range", self.tokens.position_range)
        return self.graph.op("Expand", position, self.graph.op("Shape", self.tokens.mask))

    def _offsets(self) -> str:
        """Key position - query position, int64 (length, length)."""
        position = self._once("range", self.tokens.position_range)
        keys, queries = (self.graph.op("Unsqueeze", position, [axis]) for axis in (0, 1))
        return self.graph.op("Sub", keys, queries)

    def _relative_bias(self) -> str:
        graph, layer = self.graph, self.layer
        limit = np.int64(layer.max_distance)
        buckets = buckets_of_offsets(layer.num_buckets, layer.max_distance)
        by_offset = graph.array("position_bias", lambda: numpy_weight(layer.table)[buckets].T, (layer,))
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
