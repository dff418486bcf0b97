"""Layers as nodes of an ONNX graph: dense layers, activations, normalisations. Each function adds a layer's nodes and
returns the name of its output.

The operations are those that ONNX Runtime's CPU provider computes fastest: its SkipLayerNormalization takes several
times as long as a sum and a LayerNormalization, its BiasGelu longer than a Gemm with a bias and a Gelu.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from bertzoo.adapters.lora import LoRADense
from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.export.onnx_graph.int8 import int8_product
from bertzoo.layers.functional import LayerNorm, RMSNorm

TANH_GELUS = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
LEAST = {"relu": 0.0, "silu": -0.2785, "swish": -0.2785, "tanh": None}  # values of activations; of the GELUs -0.17
ACTIVATIONS = {"gelu": "Gelu", "gelu_python": "Gelu", "relu": "Relu", "tanh": "Tanh"}


def numpy_weight(variable: Any) -> np.ndarray:
    """The value of a weight, float32."""
    return np.asarray(keras.ops.convert_to_numpy(variable), "float32")


def kernel_values(dense: keras.layers.Layer) -> np.ndarray:
    """The kernel of a dense layer with LoRA's factors merged into it, float32 (in, out).

    Raises:
        ValueError: The kernel is quantized.
    """
    if mode := getattr(getattr(dense, "dense", dense), "quantization_mode", None):
        raise ValueError(
            f"ONNX needs weights that are not quantized. Received: {dense.path}, quantized by Keras to {mode}. Export "
            "the model as it was before quantize; int8=True quantizes the export."
        )
    return dense.merged_kernel() if isinstance(dense, LoRADense) else numpy_weight(dense.kernel)


def bias_values(dense: keras.layers.Layer) -> np.ndarray | None:
    """The bias of a dense layer, float32 (out,), or None."""
    bias = getattr(dense, "dense", dense).bias
    return None if bias is None else numpy_weight(bias)


def dense(graph: Graph, layer: keras.layers.Layer, x: str, name: str) -> str:
    """The output of a dense layer, computed in float32: (rows, in) -> (rows, out)."""
    with graph.scope(name):
        return _product(graph, layer, x, kernel_values, bias_values)


def block_dense(
    graph: Graph,
    layer: keras.layers.Layer,
    x: str,
    name: str,
    least: float | None = None,
    kernel: Callable[[Any], np.ndarray] = kernel_values,
    bias: Callable[[Any], np.ndarray | None] = bias_values,
) -> str:
    """The output of a dense layer of a block, in 8 bits where the graph's plan says so: (rows, in) -> (rows, out).

    Args:
        graph: The graph.
        layer: The dense layer.
        x: Its input.
        name: Its name within the block.
        least: The least value that x can have, where it is near 0; None for x of both signs.
        kernel, bias: What make its weights from it.
    """
    with graph.scope(name):
        graph.dense_layers[graph.scope_name()] = None
        if graph.observes:
            graph.observe("largest", graph.op("ReduceMax", graph.op("Abs", x), [0], keepdims=0))
        plan, full_name = graph.plan, graph.scope_name()
        if plan is None or full_name in plan.float32_layers:
            return _product(graph, layer, x, kernel, bias)
        largest = plan.largest.get(full_name)
        y, added = int8_product(graph, x, kernel(layer), largest, least, layer), bias(layer)
        y = y if added is None else graph.op("Add", y, graph.array("bias", lambda: added, (layer, "bias")))
        if not graph.observes:
            return y
        exact = _product(graph, layer, x, kernel, bias)
        error = graph.op("ReduceSumSquare", graph.op("Sub", y, exact), keepdims=0)
        graph.observe("error", graph.op("Div", error, graph.op("ReduceSumSquare", exact, keepdims=0)))
        return exact


def _product(graph: Graph, layer: Any, x: str, kernel: Callable, bias: Callable) -> str:
    weight, added = graph.array("kernel", lambda: kernel(layer), (layer, "kernel")), bias(layer)
    if added is None:
        return graph.op("MatMul", x, weight)
    return graph.op("Gemm", x, weight, graph.array("bias", lambda: added, (layer, "bias")))


def activation(graph: Graph, function: str, x: str) -> str:
    """An activation of config.json."""
    if function in TANH_GELUS:
        return graph.op("FastGelu", x)
    if function in ("silu", "swish"):
        return graph.op("Mul", x, graph.op("Sigmoid", x))
    return graph.op(ACTIVATIONS[function], x)


def least_value(function: str) -> float | None:
    """The least value of an activation; None where values of both signs may be large."""
    return LEAST.get(function, -0.17)


def layer_norm(graph: Graph, norm: LayerNorm | RMSNorm, *terms: str) -> str:
    """The normalised sum of the terms."""
    # Not Add, which ONNX Runtime would make a SkipLayerNormalization.
    x = terms[0] if len(terms) == 1 else graph.op("Sum", *terms)
    if isinstance(norm, RMSNorm):
        mean = graph.op("ReduceMean", graph.op("Mul", x, x), [-1], keepdims=1)
        root = graph.op("Sqrt", graph.op("Add", mean, np.float32(norm.epsilon)))
        return graph.op("Mul", graph.op("Div", x, root), graph.weight(norm.gamma))
    gamma, beta = graph.weight(norm.gamma), graph.weight(norm.beta)
    return graph.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=norm.epsilon)
