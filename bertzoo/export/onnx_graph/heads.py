"""Heads as nodes of an ONNX graph."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from bertzoo.export.onnx_graph.layers import activation, dense, layer_norm
from bertzoo.layers.block import Pooler
from bertzoo.layers.deberta import ContextHead
from bertzoo.layers.eurobert import LatePoolingHead
from bertzoo.layers.heads import ClassificationHead, MaskedLMHead, Normalize
from bertzoo.layers.modernbert import NormedHead

if TYPE_CHECKING:
    from bertzoo.export.onnx_graph.graph import Graph
    from bertzoo.export.onnx_graph.model import ModelNodes

# Of Keras, for Dense layers after pooling and heads of the caller's own.
KERAS_ACTIVATIONS = {
    "linear": None,
    "relu": "Relu",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "elu": "Elu",
    "selu": "Selu",
    "softplus": "Softplus",
    "softsign": "Softsign",
}


@singledispatch
def head(layer: Any, nodes: ModelNodes, x: str) -> str:
    """A head's output from (tokens, hidden) or (batch, hidden).

    Raises:
        ValueError: The layer has no ONNX form.
    """
    raise ValueError(
        f"Expected a head of Dense, Dropout, Activation and LayerNormalization layers. Received: "
        f"{type(layer).__name__} {layer.name!r}, which has no ONNX form. Export a SavedModel instead, under TensorFlow "
        "or JAX."
    )


@head.register(ClassificationHead)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    if layer.dense_activation is not None:
        x = activation(nodes.graph, layer.dense_activation, dense(nodes.graph, layer.dense, x, "dense"))
    return dense(nodes.graph, layer.logits, x, "logits")


@head.register(LatePoolingHead)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    return dense(nodes.graph, layer.logits, x, "logits")


def prepare_tokens(layer: LatePoolingHead, graph: Graph, x: str) -> str:
    """As `LatePoolingHead.prepare_tokens`: (tokens, hidden) -> the same."""
    return activation(graph, layer.dense_activation or "gelu", dense(graph, layer.dense, x, "dense"))


@head.register(NormedHead)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    x = activation(nodes.graph, layer.dense_activation or "gelu", dense(nodes.graph, layer.dense, x, "dense"))
    return dense(nodes.graph, layer.logits, layer_norm(nodes.graph, layer.norm, x), "logits")


@head.register(ContextHead)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    first = nodes.graph.op("Gather", nodes.first_tokens(x), nodes.tokens.rows, axis=0)
    x = layer_norm(nodes.graph, layer.norm, first, x)
    return head.dispatch(ClassificationHead)(layer, nodes, x)


@head.register(MaskedLMHead)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    graph = nodes.graph
    if layer.transforms:
        x = layer_norm(graph, layer.norm, activation(graph, layer.activation, dense(graph, layer.dense, x, "dense")))
    table = nodes.encoder.token_embedding_table() if layer.tied else layer.decoder
    return graph.op("Gemm", x, graph.weight(table), graph.weight(layer.bias), transB=1)


@head.register(Pooler)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    return activation(nodes.graph, layer.activation, dense(nodes.graph, layer.dense, x, "dense"))


@head.register(Normalize)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    norm = nodes.graph.op("ReduceL2", x, [-1], keepdims=1)
    return nodes.graph.op("Div", x, nodes.graph.op("Max", norm, np.float32(1e-12)))


# ---- Keras's own layers


@head.register(keras.layers.Dense)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    return _keras_activation(nodes, layer.activation, dense(nodes.graph, layer, x, layer.name))


@head.register(keras.layers.Activation)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    return _keras_activation(nodes, layer.activation, x)


@head.register(keras.layers.Dropout)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    return x


@head.register(keras.layers.LayerNormalization)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    axes = [layer.axis] if isinstance(layer.axis, int) else list(layer.axis)
    if axes not in ([-1], [1]) or getattr(layer, "rms_scaling", False) or layer.gamma is None:
        raise ValueError(f"Expected a normalisation of the last axis, with a scale. Received: {layer.get_config()}.")
    weights = nodes.graph.weight(layer.gamma), nodes.graph.weight(layer.beta)
    return nodes.graph.op("LayerNormalization", x, *weights, axis=-1, epsilon=layer.epsilon)


@head.register(keras.Sequential)
def _(layer: Any, nodes: ModelNodes, x: str) -> str:
    for inner in layer.layers:
        x = head(inner, nodes, x)
    return x


def _keras_activation(nodes: ModelNodes, function: object, x: str) -> str:
    name = keras.activations.serialize(function)
    if name == "gelu":
        return activation(nodes.graph, "gelu", x)
    if name in ("silu", "softmax"):
        return activation(nodes.graph, "silu", x) if name == "silu" else nodes.graph.op("Softmax", x, axis=-1)
    if name not in KERAS_ACTIVATIONS:
        raise ValueError(f"Expected an activation of {', '.join(KERAS_ACTIVATIONS)}, gelu, silu. Received: {name!r}.")
    kind = KERAS_ACTIVATIONS[name]
    return x if kind is None else nodes.graph.op(kind, x)
