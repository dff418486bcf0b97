"""Embeddings and blocks as nodes of an ONNX graph. Tensors are (tokens, width)."""

from functools import singledispatch
from typing import Any

import keras
import numpy as np

from bertzoo.export.onnx_graph.attention import attention
from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.layers import (
    activation,
    bias,
    dense,
    dense_then_activation,
    layer_norm,
    matmul,
    residual_norm,
)
from bertzoo.export.onnx_graph.positions import Positions
from bertzoo.export.onnx_graph.tokens import Tokens
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.deberta import ConvolvedBlock, MaskedEmbeddings
from bertzoo.layers.embeddings import Embeddings
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
    x = layer_norm(graph, layer.norm, _sum_tables(layer, graph, tokens))
    return x if layer.dense is None else dense(graph, layer.dense, x, "projection")


@embed.register(MaskedEmbeddings)
def _(layer: Any, graph: Graph, tokens: Tokens) -> str:
    x = _sum_tables(layer, graph, tokens)
    return layer_norm(graph, layer.norm, x if layer.dense is None else dense(graph, layer.dense, x, "projection"))


def _sum_tables(layer: Embeddings, graph: Graph, tokens: Tokens) -> str:
    x = graph.op("Gather", graph.weight(layer.token), tokens.ids, axis=0)
    if layer.segment is not None:
        segments = np.int64(0) if tokens.segments is None else tokens.segments
        x = graph.op("Add", x, graph.op("Gather", graph.weight(layer.segment), segments, axis=0))
    if layer.position is not None:
        positions = tokens.columns if layer.pad_id is None else tokens.counting_positions(layer.pad_id)
        x = graph.op("Add", x, graph.op("Gather", graph.weight(layer.position), positions, axis=0))
    return x


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
        y = matmul(graph, layer.attention.output_dense, context, "output")
        residual = x if query is None else query
        x = residual_norm(graph, layer.attention_norm, y, residual, bias(graph, layer.attention.output_dense))
    inner = dense_then_activation(graph, layer.intermediate, layer.activation, x, "intermediate")
    y = matmul(graph, layer.output_dense, inner, "output")
    return residual_norm(graph, layer.output_norm, y, x, bias(graph, layer.output_dense))


@block.register(ConvolvedBlock)
def _(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None = None) -> str:
    out = block.dispatch(EncoderBlock)(layer, graph, positions, x)
    tokens = positions.tokens
    # In the layout of ONNX, (batch, hidden, length); padding is 0, as the embeddings leave it.
    padded = graph.op("Mul", tokens.pad(x), graph.op("Unsqueeze", tokens.real, [2]))
    kernel = graph.array("convolution/kernel", lambda: _convolution_kernel(layer.convolution), layer.convolution)
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
    return residual_norm(graph, layer.convolution_norm, out, near)


def _convolution_kernel(convolution: Any) -> np.ndarray:
    """(size, in, out) -> (out, in, size)."""
    return np.transpose(keras.ops.convert_to_numpy(convolution.kernel), (2, 1, 0))


@block.register(PreNormBlock)
def _(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None = None) -> str:
    with graph.scope("attention"):
        read = x if layer.is_first else layer_norm(graph, layer.attention_norm, x)
        context = attention(layer.attention, graph, positions, read)
        x = graph.op("Add", x, dense(graph, layer.attention.output_dense, context, "output"))
    inner = dense(graph, layer.intermediate, layer_norm(graph, layer.intermediate_norm, x), "intermediate")
    inner, gate = graph.op("Split", inner, outputs=2, axis=1, num_outputs=2)
    inner = graph.op("Mul", activation(graph, layer.activation, inner), gate)
    x = graph.op("Add", x, dense(graph, layer.output_dense, inner, "output"))
    return layer_norm(graph, layer.final_norm, x) if layer.is_last else x
