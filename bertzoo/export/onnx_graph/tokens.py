"""The inputs of an exported encoder, and the way between padded rows and the real tokens alone."""

import numpy as np
from onnx import TensorProto

from bertzoo.export.onnx_graph.graph import Graph

BATCH, CHOICES, LENGTH, MASKS = "batch", "choices", "length", "masks"


class Tokens:
    """Which tokens of a padded batch are computed, as nodes of the graph: the real ones.

    Products with kernels run on (tokens, width), attention on padded rows (batch, length, width).

    Args:
        graph: The graph, which gets the inputs.
        has_segments: Whether there is an input `token_type_ids`.
        has_choices: Whether inputs are (batch, choices, length).
        computes_padding: Whether padding is computed too, for heads that read it.
    """

    def __init__(self, graph: Graph, has_segments: bool, has_choices: bool = False, computes_padding: bool = False):
        self.graph = graph
        self.axes = (BATCH, CHOICES, LENGTH) if has_choices else (BATCH, LENGTH)
        ids = graph.input("input_ids", self.axes)
        mask = graph.input("attention_mask", self.axes)
        segments = graph.input("token_type_ids", self.axes) if has_segments else None
        with graph.scope("tokens"):
            self.length = graph.op("Slice", graph.op("Shape", ids), [len(self.axes) - 1], [len(self.axes)])
            self.row_shape = graph.op("Concat", [-1], self.length, axis=0)
            self.padded_ids = graph.op("Reshape", ids, self.row_shape)
            padded_mask = graph.op("Reshape", mask, self.row_shape)
            self.mask = graph.op("Cast", padded_mask, to=TensorProto.INT32)
            self.real = graph.op("Cast", padded_mask, to=TensorProto.FLOAT)
            computed = graph.op("Expand", 1, graph.op("Shape", padded_mask)) if computes_padding else padded_mask
            flat = graph.op("Reshape", computed, [-1])
            # Of each token its place in the padded batch.
            self.places = graph.op("Reshape", graph.op("NonZero", flat), [-1])
            self.rows = graph.op("Div", self.places, self.length)
            self.columns = graph.op("Mod", self.places, self.length)
            # Of each place its token: for padding that before it, since attention masks what it gets.
            through = graph.op("CumSum", flat, 0)
            self.token_at = graph.op("Reshape", graph.op("Max", graph.op("Sub", through, 1), 0), self.row_shape)
            # Of each row its first token; of rows without tokens any.
            counts = graph.op("ReduceSum", computed, [1], keepdims=0)
            last = graph.op("Sub", graph.op("Shape", self.places), 1)
            self.first = graph.op("Min", graph.op("CumSum", counts, 0, exclusive=1), last)
            self.ids = self.pick(graph.op("Reshape", ids, [-1]))
            self.segments = None if segments is None else self.pick(graph.op("Reshape", segments, [-1]))

    def pick(self, x: str) -> str:
        """(batch · length, …) -> (tokens, …)."""
        return self.graph.op("Gather", x, self.places, axis=0)

    def pad(self, x: str) -> str:
        """(tokens, …) -> (batch, length, …), with any token's values at padding."""
        return self.graph.op("Gather", x, self.token_at, axis=0)

    def counting_positions(self, pad_id: int) -> str:
        """RoBERTa's positions: from `pad_id` + 1 on for ids that are not the padding token's, which has `pad_id`."""
        graph = self.graph
        not_padding = graph.op("Not", graph.op("Equal", self.padded_ids, np.int64(pad_id)))
        counts = graph.op("Cast", not_padding, to=TensorProto.INT64)
        positions = graph.op("Add", graph.op("Mul", graph.op("CumSum", counts, 1), counts), pad_id)
        return self.pick(graph.op("Reshape", positions, [-1]))

    def float_input(self, name: str) -> str:
        """Adds an input for the tokens, float32 (batch, length)."""
        padded = self.graph.op("Reshape", self.graph.input(name, self.axes), self.row_shape)
        return self.graph.op("Cast", padded, to=TensorProto.FLOAT)

    def position_range(self) -> str:
        """0, 1, … of the places of a row, int64 (length,)."""
        return self.graph.op("Range", np.int64(0), self.graph.op("Squeeze", self.length), np.int64(1))
