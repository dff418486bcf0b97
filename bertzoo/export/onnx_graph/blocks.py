"""Embeddings and blocks as nodes of an ONNX graph. Tensors are (tokens, width)."""

from functools import singledispatch
from typing import Any

import numpy as np

from bertzoo.export.onnx_graph.attention import attention
from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.layers import activation, block_dense, dense, layer_norm, least_value, numpy_weight
from bertzoo.export.onnx_graph.positions import Positions
from bertzoo.export.onnx_graph.tokens import Tokens
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.deberta import ConvolvedBlock, MaskedEmbeddings
from bertzoo.layers.embeddings import Embeddings
from bertzoo.layers.ernie import TaskEmbeddings
from bertzoo.layers.eurobert import PlainEmbeddings
from bertzoo.layers.gated import GatedBlock
from bertzoo.layers.modernbert import PreNormBlock


def refuse(layer: Any) -> ValueError:
    """The error for a layer that no function writes."""
    return ValueError(
        f"Expected a layer of the families. Received: {type(layer).__name__} {layer.name!r}, which has no ONNX form. "
        "Export a SavedModel instead, under TensorFlow or JAX."
    )


@singledispatch
def embed(layer: Any, graph: Graph, tokens: Tokens) -> str:
    """The embeddings of the tokens; raises ValueError for a layer that has no ONNX form."""
    raise refuse(layer)


@embed.register(Embeddings)
def _(layer: Any, graph: Graph, tokens: Tokens) -> str:
    x = layer_norm(graph, layer.norm, *_looked_up(layer, graph, tokens))
    return x if layer.dense is None else dense(graph, layer.dense, x, "projection")


@embed.register(PlainEmbeddings)
def _(layer: Any, graph: Graph, tokens: Tokens) -> str:
    terms = _looked_up(layer, graph, tokens)
    return terms[0] if len(terms) == 1 else graph.op("Sum", *terms)


@embed.register(MaskedEmbeddings)
def _(layer: Any, graph: Graph, tokens: Tokens) -> str:
    terms = _looked_up(layer, graph, tokens)
    if layer.dense is not None:
        x = terms[0] if len(terms) == 1 else graph.op("Sum", *terms)
        terms = [dense(graph, layer.dense, x, "projection")]
    return layer_norm(graph, layer.norm, *terms)


def _looked_up(layer: Embeddings, graph: Graph, tokens: Tokens) -> list[str]:
    """The rows of the tables, (tokens, width) each."""
    rows: list[tuple[Any, Any]] = [(layer.token, tokens.ids)]
    if layer.segment is not None:
        rows.append((layer.segment, np.zeros(1, "int64") if tokens.segments is None else tokens.segments))
    if layer.position is not None:
        rows.append(
            (layer.position, tokens.columns if layer.pad_id is None else tokens.counting_positions(layer.pad_id))
        )
    if isinstance(layer, TaskEmbeddings):
        rows.append((layer.task, np.zeros(1, "int64")))
    return [graph.op("Gather", graph.weight(table), indices, axis=0) for table, indices in rows]


@singledispatch
def block(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None = None) -> str:
    """A block's output.

    Args:
        layer: The block.
        graph, positions: The graph, and what blocks share about positions.
        x: (tokens, hidden).
        query: Other vectors of the tokens that attend to x, in place of x itself.

    Raises:
        ValueError: The layer has no ONNX form.
    """
    raise refuse(layer)


@block.register(EncoderBlock)
def _(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None = None) -> str:
    with graph.scope("attention"):
        context = attention(layer.attention, graph, positions, x, query)
        y = block_dense(graph, layer.attention.output_dense, context, "output")
        x = layer_norm(graph, layer.attention_norm, y, x if query is None else query)
    inner, least = block_dense(graph, layer.intermediate, x, "intermediate"), None
    if isinstance(layer, GatedBlock):
        inner, gate = graph.op("Split", inner, outputs=2, axis=1, num_outputs=2)
        inner = graph.op("Mul", inner, activation(graph, layer.activation, gate))
    else:
        inner, least = activation(graph, layer.activation, inner), least_value(layer.activation)
    return layer_norm(graph, layer.output_norm, block_dense(graph, layer.output_dense, inner, "output", least), x)


@block.register(ConvolvedBlock)
def _(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None = None) -> str:
    out = block.dispatch(EncoderBlock)(layer, graph, positions, x)
    tokens = positions.tokens
    # In the layout of ONNX, (batch, hidden, length); padding is 0, as the embeddings leave it.
    padded = graph.op("Mul", tokens.pad(x), graph.op("Unsqueeze", tokens.real, [2]))
    kernel = graph.array(
        "convolution/kernel",
        lambda: np.transpose(numpy_weight(layer.convolution.kernel), (2, 1, 0)),
        (layer.convolution, "kernel"),
    )
    margin = layer.kernel_size // 2
    near = graph.op(
        "Conv",
        graph.op("Transpose", padded, perm=[0, 2, 1]),
        kernel,
        graph.weight(layer.convolution.bias),
        pads=[margin, margin],
    )
    near = graph.op("Reshape", graph.op("Transpose", near, perm=[0, 2, 1]), [-1, layer.hidden_size])
    near = activation(graph, layer.convolution_activation, tokens.pick(near))
    return layer_norm(graph, layer.convolution_norm, out, near)


@block.register(PreNormBlock)
def _(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None = None) -> str:
    with graph.scope("attention"):
        read = x if layer.is_first else layer_norm(graph, layer.attention_norm, x)
        context = attention(layer.attention, graph, positions, read)
        x = graph.op("Sum", x, block_dense(graph, layer.attention.output_dense, context, "output"))
    inner = block_dense(graph, layer.intermediate, layer_norm(graph, layer.intermediate_norm, x), "intermediate")
    inner, gate = graph.op("Split", inner, outputs=2, axis=1, num_outputs=2)
    inner = graph.op("Mul", activation(graph, layer.activation, inner), gate)
    x = graph.op("Sum", x, block_dense(graph, layer.output_dense, inner, "output"))
    return layer_norm(graph, layer.final_norm, x) if layer.is_last else x
