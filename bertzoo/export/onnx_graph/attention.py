"""Attention as nodes of an ONNX graph: projections of tokens, and scores of padded rows."""

import math
from functools import singledispatch
from typing import Any

import numpy as np

from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.layers import bias, kernel, kernel_values, numpy_weight
from bertzoo.export.onnx_graph.positions import Positions
from bertzoo.layers.attention import MASKED, SelfAttention
from bertzoo.layers.deberta import DisentangledAttention, DisentangledAttentionV1
from bertzoo.layers.modernbert import RotaryAttention
from bertzoo.layers.roformer import RoFormerAttention

Parts = tuple[str, str, str]  # queries, keys and values, (tokens, hidden) each


def attention(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None = None) -> str:
    """The values' means, (tokens, hidden).

    Args:
        layer: The attention layer.
        graph, positions: The graph, and what blocks share about positions.
        x: (tokens, hidden).
        query: Other vectors of the tokens that attend to x, in place of x itself.
    """
    tokens = positions.tokens
    parts = [tokens.pad(part) for part in project(layer, graph, positions, x, query)]
    added, terms = score_bias(layer, graph, positions, *parts[:2])
    context = graph.op(
        "MultiHeadAttention",
        *parts,
        None,
        tokens.mask,
        added,
        num_heads=layer.num_heads,
        mask_filter_value=MASKED,
        scale=1 / math.sqrt(layer.hidden_size // layer.num_heads * terms),
    )
    return tokens.pick(graph.op("Reshape", context, [-1, layer.hidden_size]))


# ---- queries, keys and values


@singledispatch
def project(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None) -> Parts:
    """Queries (of `query`, if any), keys and values of x; raises ValueError for a layer that has no ONNX form."""
    raise ValueError(f"Expected an attention layer of the families. Received: {type(layer).__name__} {layer.name!r}.")


@project.register(SelfAttention)
def _(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None) -> Parts:
    return _projected(graph, x, query, kernel(graph, layer.qkv, "qkv"), bias(graph, layer.qkv))


@project.register(DisentangledAttentionV1)
def _(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None) -> Parts:
    heads = layer.num_heads

    def kernel_by_part() -> np.ndarray:
        own = kernel_values(layer.qkv)
        return own.reshape(len(own), heads, 3, -1).swapaxes(1, 2).reshape(own.shape)

    def biases() -> np.ndarray:
        query_bias, value_bias = numpy_weight(layer.query_bias), numpy_weight(layer.value_bias)
        return np.concatenate([query_bias, np.zeros_like(query_bias), value_bias])

    weight = graph.array("qkv/kernel", kernel_by_part, layer.qkv)
    return _projected(graph, x, query, weight, graph.array("qkv/bias", biases, layer))


@project.register(RotaryAttention)
def _(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None) -> Parts:
    queries, keys, values = project.dispatch(SelfAttention)(layer, graph, positions, x, query)
    size = layer.hidden_size // layer.num_heads
    frequency = np.float32(layer.theta) ** (-np.arange(0, size, 2, dtype="float32") / np.float32(size))
    angle = np.arange(positions.max_length, dtype="float32")[:, None] * frequency
    queries, keys = (positions.rotate(part, np.cos(angle), np.sin(angle), False) for part in (queries, keys))
    return queries, keys, values


@project.register(RoFormerAttention)
def _(layer: Any, graph: Graph, positions: Positions, x: str, query: str | None) -> Parts:
    queries, keys, values = project.dispatch(SelfAttention)(layer, graph, positions, x, query)
    sin, cos = np.split(numpy_weight(positions.layer.table), 2, axis=1)
    queries, keys = (positions.rotate(part, cos, sin, True) for part in (queries, keys))
    return queries, keys, positions.rotate(values, cos, sin, True) if layer.rotary_value else values


def _projected(graph: Graph, x: str, query: str | None, weight: str, added: str | None) -> Parts:
    def parts(source: str) -> Parts:
        with graph.scope("qkv"):
            y = graph.op("MatMul", source, weight)
            y = y if added is None else graph.op("Add", y, added)
            return tuple(graph.op("Split", y, outputs=3, axis=1, num_outputs=3))

    return parts(x) if query is None else (parts(query)[0], *parts(x)[1:])


# ---- what is added to the scores


@singledispatch
def score_bias(layer: Any, graph: Graph, positions: Positions, queries: str, keys: str) -> tuple[str | None, int]:
    """A bias of the scores, broadcastable to (batch, heads, length, length), or None; and the number of terms that the
    scores are the sum of. Queries and keys are (batch, length, hidden)."""
    return positions.bias(), 1


@score_bias.register(RotaryAttention)
def _(layer: Any, graph: Graph, positions: Positions, queries: str, keys: str) -> tuple[str | None, int]:
    return None if layer.window is None else positions.window(layer.window), 1


@score_bias.register(DisentangledAttention)
def _(layer: Any, graph: Graph, positions: Positions, queries: str, keys: str) -> tuple[str | None, int]:
    if positions.table() is None:
        return None, 1 + len(layer.terms)
    added, rows = None, positions.distance_rows(layer)
    with graph.scope("positions"):
        if "c2p" in layer.terms:
            # In descending order of distance, which is the order of a query's keys.
            descending = graph.op("Slice", rows, [-1], [-(2**31)], [0], [-1])
            table = _position_part(layer, graph, positions, "key")
            added = _skewed(layer, graph, positions, queries, descending, table, True)
        if "p2c" in layer.terms:
            table = _position_part(layer, graph, positions, "query")
            by_key = _skewed(layer, graph, positions, keys, rows, table, False)
            by_query = graph.op("Transpose", by_key, perm=[0, 1, 3, 2])
            added = by_query if added is None else graph.op("Add", added, by_query)
    return added, 1 + len(layer.terms)


def _position_part(layer: Any, graph: Graph, positions: Positions, part: str) -> str:
    """The keys or queries of the table's rows, scaled as scores are: a constant (heads, head size, rows)."""
    size = layer.hidden_size // layer.num_heads

    def values() -> np.ndarray:
        table = positions.table()
        if layer.share_projections:
            start = layer.hidden_size * ("query", "key").index(part)
            columns = slice(start, start + layer.hidden_size)
            own = table @ kernel_values(layer.qkv)[:, columns] + numpy_weight(layer.qkv.bias)[columns]
        else:
            dense = getattr(layer, f"position_{part}")
            own = table @ kernel_values(dense)
            own = own if dense.bias is None else own + numpy_weight(dense.bias)
        own = own / math.sqrt(size * (1 + len(layer.terms)))
        return own.reshape(len(own), layer.num_heads, size).transpose(1, 2, 0)

    return graph.array(f"position_{part}", values, (layer, part))


def _skewed(layer: Any, graph: Graph, positions: Positions, x: str, rows: str, table: str, descending: bool) -> str:
    """The scores of contents (batch, length, hidden) with the table's rows: (batch, heads, length, length).

    As `bertzoo.layers.deberta.skew`: rows of 2 · length scores, read as rows of one score less, begin one score earlier
    each.
    """
    length, size = positions.tokens.length, layer.hidden_size // layer.num_heads
    x = graph.op("Reshape", x, [0, 0, layer.num_heads, size])
    x = graph.op("Transpose", x, perm=[0, 2, 1, 3])
    scores = graph.op("MatMul", x, graph.op("Gather", table, rows, axis=2))
    twice = graph.op("Mul", length, 2)
    less = graph.op("Sub", twice, 1)
    flat = graph.op("Reshape", scores, graph.op("Concat", [0, 0, -1], axis=0))
    first = graph.op("Sub", length, 1) if descending else length
    end = graph.op("Add", first, graph.op("Mul", length, less))
    flat = graph.op("Slice", flat, first, end, [2])
    shape = graph.op("Concat", [0, 0], length, less, axis=0)
    return graph.op("Slice", graph.op("Reshape", flat, shape), [0], length, [3])
