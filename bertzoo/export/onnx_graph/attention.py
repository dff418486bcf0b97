"""Attention as nodes of an ONNX graph: projections of tokens, and scores of padded rows.

Plain products: ONNX Runtime's MultiHeadAttention takes longer, since it moves padded rows between layouts; here heads
are gathered from the tokens' projections and back.
"""

import math
from functools import singledispatch
from typing import Any

import numpy as np

from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.layers import bias_values, block_dense, kernel_values, numpy_weight
from bertzoo.export.onnx_graph.positions import Positions
from bertzoo.layers.attention import SelfAttention
from bertzoo.layers.deberta import DisentangledAttention, DisentangledAttentionV1
from bertzoo.layers.roformer import RoFormerAttention
from bertzoo.layers.rotary import RotaryAttention, rotary_frequencies

Heads = list[str]  # queries, keys and values, (batch, heads, length, head size) each


def attention(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None = None) -> str:
    """The values' means, (tokens, hidden).

    Args:
        layer: The attention layer.
        graph, positions: The graph, and what blocks share about positions.
        x: (tokens, hidden).
        query: Other vectors of the tokens that attend to x, in place of x itself.
    """
    heads = positions.heads
    projection = project(layer, graph, x)
    queries, keys, values = heads.split(projection)
    if query is not None:
        queries = heads.split(project(layer, graph, query))[0]
    queries, keys, values = place(layer, positions, queries, keys, values)
    added, terms = score_bias(layer, graph, positions, queries, keys)
    scale = 1 / math.sqrt(layer.hidden_size // layer.num_heads * terms)
    scores = graph.op("FusedMatMul", queries, keys, transB=1, alpha=scale)
    weights = graph.op("Softmax", graph.op("Add", scores, added), axis=-1)
    return heads.join(graph.op("MatMul", weights, values))


# ---- queries, keys and values


@singledispatch
def project(layer: Any, graph: Graph, x: str) -> str:
    """Queries, keys and values side by side, (tokens, 3 · hidden); raises ValueError for a layer without ONNX form."""
    raise ValueError(f"Expected an attention layer of the families. Received: {type(layer).__name__} {layer.name!r}.")


@project.register(SelfAttention)
def _(layer: Any, graph: Graph, x: str) -> str:
    return block_dense(graph, layer.qkv, x, "qkv")


@project.register(DisentangledAttentionV1)
def _(layer: Any, graph: Graph, x: str) -> str:
    def kernel(dense: Any) -> np.ndarray:  # its columns are ordered by head, then by part
        own = kernel_values(dense)
        return own.reshape(len(own), layer.num_heads, 3, -1).swapaxes(1, 2).reshape(own.shape)

    def bias(dense: Any) -> np.ndarray:
        query_bias, value_bias = numpy_weight(layer.query_bias), numpy_weight(layer.value_bias)
        return np.concatenate([query_bias, np.zeros_like(query_bias), value_bias])

    return block_dense(graph, layer.qkv, x, "qkv", kernel=kernel, bias=bias)


@project.register(RotaryAttention)
def _(layer: Any, graph: Graph, x: str) -> str:
    size, groups = layer.hidden_size // layer.num_heads, layer.num_key_value_heads
    # The columns of keys and values, once for each head of queries.
    of_group = np.repeat(np.arange(groups), layer.num_heads // groups)
    heads = np.concatenate(
        [np.arange(layer.num_heads), layer.num_heads + of_group, layer.num_heads + groups + of_group]
    )
    columns = (heads[:, None] * size + np.arange(size)).ravel()

    def kernel(dense: Any) -> np.ndarray:
        return kernel_values(dense)[:, columns]

    def bias(dense: Any) -> np.ndarray | None:
        added = bias_values(dense)
        return None if added is None else added[columns]

    return block_dense(graph, layer.qkv, x, "qkv", kernel=kernel, bias=bias)


@singledispatch
def place(layer: Any, positions: Positions, queries: str, keys: str, values: str) -> Heads:
    """Queries, keys and values with what they have of positions."""
    return [queries, keys, values]


@place.register(RotaryAttention)
def _(layer: Any, positions: Positions, queries: str, keys: str, values: str) -> Heads:
    size = layer.hidden_size // layer.num_heads
    frequency = rotary_frequencies(size, layer.theta, layer.position_scale)
    angle = np.arange(positions.max_length, dtype="float32")[:, None] * frequency
    turned = [positions.rotate(x, np.cos(angle), np.sin(angle), False) for x in (queries, keys)]
    return [*turned, values]


@place.register(RoFormerAttention)
def _(layer: Any, positions: Positions, queries: str, keys: str, values: str) -> Heads:
    sin, cos = np.split(numpy_weight(positions.layer.table), 2, axis=1)
    turned = [positions.rotate(x, cos, sin, True) for x in (queries, keys)]
    return [*turned, positions.rotate(values, cos, sin, True) if layer.rotary_value else values]


# ---- what is added to the scores


@singledispatch
def score_bias(layer: Any, graph: Graph, positions: Positions, queries: str, keys: str) -> tuple[str, int]:
    """What is added to the scores, the mask included, broadcastable to (batch, heads, length, length); and the number
    of terms that the scores are the sum of."""
    return positions.bias(), 1


@score_bias.register(RotaryAttention)
def _(layer: Any, graph: Graph, positions: Positions, queries: str, keys: str) -> tuple[str, int]:
    return positions.mask() if layer.window is None else positions.window(layer.window), 1


@score_bias.register(DisentangledAttention)
def _(layer: Any, graph: Graph, positions: Positions, queries: str, keys: str) -> tuple[str, int]:
    added, count = [positions.mask()], 1 + len(layer.terms)
    if positions.table() is None:
        return added[0], count
    rows = positions.distance_rows(layer)
    if "c2p" in layer.terms:
        # In descending order of distance, which is the order of a query's keys.
        descending = graph.op("Slice", rows, [-1], [-(2**31)], [0], [-1])
        table = _position_part(layer, graph, positions, "key")
        added.append(_skewed(graph, positions, queries, descending, table, first=-1))
    if "p2c" in layer.terms:
        table = _position_part(layer, graph, positions, "query")
        by_key = _skewed(graph, positions, keys, rows, table, first=0)
        added.append(graph.op("Transpose", by_key, perm=[0, 1, 3, 2]))
    return graph.op("Sum", *added), count


def _position_part(layer: Any, graph: Graph, positions: Positions, part: str) -> str:
    """The keys or queries of the table's rows, scaled as scores are: a constant (heads, head size, rows)."""
    size = layer.hidden_size // layer.num_heads

    def values() -> np.ndarray:
        table, added = positions.table(), bias_values(layer.qkv)
        if layer.share_projections:
            start = layer.hidden_size * ("query", "key").index(part)
            columns = slice(start, start + layer.hidden_size)
            own, added = kernel_values(layer.qkv)[:, columns], None if added is None else added[columns]
        else:
            dense = getattr(layer, f"position_{part}")
            own, added = kernel_values(dense), bias_values(dense)
        own = table @ own if added is None else table @ own + added
        own = own / math.sqrt(size * (1 + len(layer.terms)))
        return own.reshape(len(own), layer.num_heads, size).transpose(1, 2, 0)

    return graph.array(f"position_{part}", values, (layer, part))


def _skewed(graph: Graph, positions: Positions, x: str, rows: str, table: str, first: int) -> str:
    """The scores of contents (batch, heads, length, head size) with the table's rows: (batch, heads, length, length).

    As `bertzoo.layers.deberta.skew`: rows of 2 · length scores, read as rows of one score less, begin one score earlier
    each. The first of them begins at length + `first`.
    """
    length = positions.tokens.length
    scores = graph.op("MatMul", x, graph.op("Gather", table, rows, axis=2))
    less = graph.op("Sub", graph.op("Mul", length, 2), 1)
    flat = graph.op("Reshape", scores, [0, 0, -1])
    begin = graph.op("Add", length, first)
    flat = graph.op("Slice", flat, begin, graph.op("Add", begin, graph.op("Mul", length, less)), [2])
    shape = graph.op("Concat", [0, 0], length, less, axis=0)
    return graph.op("Slice", graph.op("Reshape", flat, shape), [0], length, [3])
