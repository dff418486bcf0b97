"""Layers as nodes of an ONNX graph: dense layers, activations, normalisations. Each function adds a layer's nodes and
returns the name of its output."""

from typing import Any

import keras
import numpy as np

from bertzoo.adapters.lora import LoRADense
from bertzoo.export.onnx_graph.graph import Graph
from bertzoo.layers.functional import LayerNorm

ERF_GELUS = ("gelu", "gelu_python")
TANH_GELUS = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")


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


def kernel(graph: Graph, dense: keras.layers.Layer, name: str) -> str:
    """The kernel of a dense layer, as `kernel_values`."""
    return graph.array(f"{name}/kernel", lambda: kernel_values(dense), dense)


def bias(graph: Graph, dense: keras.layers.Layer) -> str | None:
    """The bias of a dense layer, or None."""
    return graph.weight(getattr(dense, "dense", dense).bias)


def matmul(graph: Graph, dense: keras.layers.Layer, x: str, name: str) -> str:
    """x times the kernel of a dense layer."""
    with graph.scope(name):
        return graph.op("MatMul", x, kernel(graph, dense, name))


def dense(graph: Graph, layer: keras.layers.Layer, x: str, name: str) -> str:
    """The output of a dense layer."""
    y, added = matmul(graph, layer, x, name), bias(graph, layer)
    return y if added is None else graph.op("Add", y, added)


def activation(graph: Graph, function: str, x: str, added: str | None = None) -> str:
    """An activation of config.json, of x plus a bias."""
    if function in ERF_GELUS and added:
        return graph.op("BiasGelu", x, added)
    if function in TANH_GELUS:
        return graph.op("FastGelu", x, added)
    if added:
        x = graph.op("Add", x, added)
    if function in ERF_GELUS:
        return graph.op("Gelu", x)
    if function in ("silu", "swish"):
        return graph.op("Mul", x, graph.op("Sigmoid", x))
    return graph.op({"relu": "Relu", "tanh": "Tanh"}[function], x)


def dense_then_activation(graph: Graph, layer: keras.layers.Layer, function: str, x: str, name: str) -> str:
    """The activation of a dense layer's output."""
    return activation(graph, function, matmul(graph, layer, x, name), bias(graph, layer))


def layer_norm(graph: Graph, norm: LayerNorm, x: str) -> str:
    """A normalised x."""
    gamma, beta = graph.weight(norm.gamma), graph.weight(norm.beta)
    return graph.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=norm.epsilon)


def residual_norm(graph: Graph, norm: LayerNorm, x: str, residual: str, added: str | None = None) -> str:
    """norm(x + bias + residual)."""
    gamma, beta = graph.weight(norm.gamma), graph.weight(norm.beta)
    return graph.op("SkipLayerNormalization", x, residual, gamma, beta, added, epsilon=norm.epsilon)
