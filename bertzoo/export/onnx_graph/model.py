"""The forward pass of an encoder or task as an ONNX graph."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from bertzoo.export.engine import SETTINGS
from bertzoo.export.onnx_graph.blocks import block, embed
from bertzoo.export.onnx_graph.entities import entity_logits
from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.heads import head, prepare_tokens
from bertzoo.export.onnx_graph.int8 import Int8Plan
from bertzoo.export.onnx_graph.pooling import Pooled, pool, splade
from bertzoo.export.onnx_graph.positions import Positions
from bertzoo.export.onnx_graph.tokens import BATCH, CHOICES, LENGTH, MASKS, Tokens
from bertzoo.layers.deberta import DECODER_STEPS, EnhancedMaskDecoder
from bertzoo.layers.entities import EntityHead
from bertzoo.layers.eurobert import LatePoolingHead
from bertzoo.layers.heads import MaskedLMHead, Pooling
from bertzoo.layers.splade import SpladePooling

Output = tuple[str, tuple[str | int, ...]]  # a tensor and its shape


def build_onnx(model: Any, plan: Int8Plan | None = None, settings: Mapping[str, Any] | None = None) -> Any:
    """The ONNX model of an encoder or task, whose outputs are those of its `onnx_outputs`.

    Args:
        model: The encoder or task.
        plan: How dense layers of blocks are computed; None for float32.
        settings: What the file says besides the model's own settings.

    Raises:
        ValueError: A layer has no ONNX form, or the model does not compute in float32.
    """
    nodes = ModelNodes(model, Graph(plan))
    content = {**model.exported_settings(), **(settings or {})}
    return nodes.graph.model(model.onnx_outputs(nodes), {SETTINGS: json.dumps(content)})


def build_observed(model: Any, plan: Int8Plan | None = None) -> tuple[Any, list[tuple[str, str]]]:
    """The encoder of a model, with what its dense layers show; see `Graph`.

    Args:
        model: The encoder or task.
        plan: What to compare with float32.

    Returns:
        The ONNX model, and of each output what it shows, and of which layer.
    """
    graph = Graph(plan, observes=True)
    ModelNodes(model, graph)
    outputs = {f"observed_{i}": (tensor, None) for i, (_, tensor) in enumerate(graph.observed)}
    return graph.model(outputs, {}), [what for what, _ in graph.observed]


class ModelNodes:
    """The encoder of a model in a graph, and what tasks add to it. Tensors are names.

    Args:
        model: The encoder or task.
        graph: The graph.

    Attributes:
        hidden: The encoder's output, (tokens, hidden).
    """

    def __init__(self, model: Any, graph: Graph):
        if model.compute_dtype != "float32":
            raise ValueError(f"ONNX needs a model that computes in float32. Received: {model.compute_dtype}.")
        self.encoder, self.graph = getattr(model, "backbone", model), graph
        config = self.encoder.config
        heads = getattr(model, "heads", ())
        reads_padding = any(self.encoder.family.head_reads_padding(config, name) for name in heads)
        has_segments = config.type_vocab_size > 1 and not getattr(model, "reads_token_roles", False)
        self.tokens = Tokens(graph, has_segments, "multiple_choice" in heads, reads_padding)
        with graph.scope("embeddings"):
            self.hidden = embed(self.encoder.embeddings, graph, self.tokens)
        self.positions = Positions(graph, self.tokens, self.encoder)
        self.before_last = self.hidden
        for index in self.encoder.block_order:
            self.before_last, layer = self.hidden, self.encoder.blocks[index]
            with graph.scope(layer.name):
                self.hidden = block(layer, graph, self.positions, self.hidden)

    # ---- what heads read

    def first_tokens(self, x: str) -> str:
        """(tokens, width) -> (batch, width): of the first token of each row."""
        return self.graph.op("Gather", x, self.tokens.first, axis=0)

    def pooled(self) -> str:
        """The pooler's output, (batch, hidden)."""
        return self.head(self.encoder.pooler, self.first_tokens(self.hidden))

    def pool_for_head(self, uses_pooler: bool, head_name: str = "classifier", layer: Any = None) -> str:
        """As `Encoder.pool_for_head`, (batch, hidden); `layer` is the head, which may have a layer for tokens."""
        if uses_pooler:
            return self.pooled()
        x = self.hidden
        if isinstance(layer, LatePoolingHead):
            with self.graph.scope(layer.name):
                x = prepare_tokens(layer, self.graph, x)
        kind = self.encoder.family.head_pooling(self.encoder.config, head_name)
        if kind == "first":
            return self.first_tokens(x)
        padded = self.tokens.pad(x)
        if kind == "last place":
            return self.graph.op("Gather", padded, np.int64(-1), axis=1)
        if kind == "mean of places":
            return self.graph.op("ReduceMean", padded, [1], keepdims=0)
        return Pooled(self.graph, self.tokens, x, self.tokens.real).mean()

    def pool(self, layer: Pooling) -> str:
        """The vectors of sentences, (batch, width)."""
        counted = self.tokens.real
        if not layer.include_prompt:
            counted = self.tokens.float_input("pooling_mask")
        return pool(layer, self.graph, self.tokens, self.hidden, counted)

    def splade(self, layer: SpladePooling, head: MaskedLMHead) -> str:
        """The sparse vectors of texts, (batch, vocabulary)."""
        return splade(layer, self.graph, self.tokens, self.head(head, self.decoded(head)))

    def decoded(self, layer: MaskedLMHead) -> str:
        """What a masked-LM head reads, (tokens, hidden)."""
        if not isinstance(layer, EnhancedMaskDecoder):
            return self.hidden
        position = self.graph.op("Gather", self.graph.weight(layer.position), self.tokens.columns, axis=0)
        query, last = (
            self.graph.op("Add", self.before_last, position),
            self.encoder.blocks[self.encoder.block_order[-1]],
        )
        for step in range(DECODER_STEPS):
            with self.graph.scope(f"decoder_{step}"):
                query = block(last, self.graph, self.positions, self.before_last, query)
        return query

    def head(self, layer: Any, x: str) -> str:
        """A head's output, (rows of x, …)."""
        with self.graph.scope(layer.name):
            return head(layer, self, x)

    def entities(self, layer: EntityHead, num_labels: int) -> Output:
        """The logits of entities at the words' tokens, of as many labels; see `onnx_graph.entities`."""
        with self.graph.scope(layer.name):
            logits, shape = entity_logits(layer, self.graph, self.tokens, self.hidden, num_labels)
        return self.padded(logits, *shape)

    def at_id(self, token_id: int, x: str) -> str:
        """(tokens, width) -> (masks, width): of the tokens with an id."""
        found = self.graph.op("NonZero", self.graph.op("Equal", self.tokens.ids, np.int64(token_id)))
        return self.graph.op("Gather", x, self.graph.op("Reshape", found, [-1]), axis=0)

    # ---- outputs

    def masks(self, x: str, *shape: int) -> Output:
        """An output for mask tokens: (masks, …), row by row."""
        return x, (MASKS, *shape)

    def rows(self, x: str, *shape: int) -> Output:
        """An output for rows: (batch, …)."""
        return x, (BATCH, *shape)

    def choices(self, x: str) -> Output:
        """An output for choices: (batch · choices, 1) -> (batch, choices)."""
        shape = self.graph.op("Slice", self.graph.op("Shape", "input_ids"), [0], [2])
        return self.graph.op("Reshape", x, shape), (BATCH, CHOICES)

    def padded(self, x: str, *shape: int) -> Output:
        """An output for tokens: (tokens, …) -> (batch, length, …); without `shape` (tokens, 1) -> (batch, length)."""
        x = x if shape else self.graph.op("Squeeze", x, [1])
        return self.tokens.pad(x), (BATCH, LENGTH, *shape)
