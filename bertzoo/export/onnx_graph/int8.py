"""Dense layers in 8 bits: codes of weights with a scale for each column, codes of inputs with a scale for each row.

A row's scale depends on that row alone, so that no text changes another's outputs. Before, inputs are divided by
factors for each channel, by which the kernel is multiplied: channels with large values would else take all codes (Xiao
et al. 2023, "SmoothQuant", equation 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bertzoo.export.onnx_graph.graph import Graph

CODES = 127  # on each side of 0, of weights and of inputs with both signs
# Of inputs with a least value, such as an activation's outputs: codes above 0, and below it.
CODES_ABOVE, CODES_BELOW = 228, 27
TINY = np.float32(1e-30)


@dataclass(frozen=True)
class Int8Plan:
    """How the dense layers of blocks are computed.

    Args:
        largest: Layer -> the largest absolute value of each input channel, float32 (in,).
        float32_layers: The layers that stay float32.
    """

    largest: Mapping[str, np.ndarray] = field(default_factory=dict)
    float32_layers: frozenset[str] = frozenset()


def smoothing_factors(largest: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """√(largest input / largest weight) of each channel, divided by their median: float32 (in,)."""
    weights = np.maximum(np.abs(kernel).max(axis=1), 1e-6)
    inputs = np.maximum(largest, 1e-3 * largest.max() + 1e-6)
    factors = np.sqrt(inputs / weights)
    return (factors / np.median(factors)).astype("float32")


def quantize_kernel(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes int8 (in, out) and scales float32 (out,): kernel ≈ codes · scales."""
    scales = np.maximum(np.abs(kernel).max(axis=0), TINY) / CODES
    return np.rint(kernel / scales).astype("int8"), scales.astype("float32")


def int8_product(
    graph: Graph, x: str, kernel: np.ndarray, largest: np.ndarray | None, least: float | None, owner: object
) -> str:
    """x · kernel in 8 bits: (rows, in) -> (rows, out).

    Args:
        graph: The graph.
        x: float32 (rows, in).
        kernel: float32 (in, out).
        largest: The largest absolute value of each input channel; None to smooth nothing.
        least: The least value that x can have, where it is near 0; None for x of both signs.
        owner: The layer.
    """
    if least is None and largest is not None:
        factors = smoothing_factors(largest, kernel)
        kernel = kernel * factors[:, None]
        x = graph.op("Mul", x, graph.array("smoothing", lambda: 1 / factors, (owner, "smoothing")))
    if least is None:
        size, floor, above, zero = graph.op("Abs", x), TINY, CODES, np.uint8(128)
    else:  # with a floor below which the least value would have no code
        floor = np.float32(max(float(TINY), -least * CODES_ABOVE / CODES_BELOW))
        size, above, zero = x, CODES_ABOVE, np.uint8(CODES_BELOW)
    size = graph.op("Max", graph.op("ReduceMax", size, [1], keepdims=1), floor)
    step = np.float32(1 / above)
    codes, scales = quantize_kernel(kernel)
    # Zeros for each layer, which ONNX Runtime replaces where it changes the form of the codes.
    arrays = {"codes": codes, "scales": scales, "zeros": np.zeros(len(scales), "int8")}
    weights = [graph.array(name, partial(np.asarray, array), (owner, name)) for name, array in arrays.items()]
    rows = graph.op("QuantizeLinear", graph.op("Div", x, size), step, zero)
    y = graph.op("MatMulIntegerToFloat", rows, weights[0], step, weights[1], zero, weights[2])
    return graph.op("Mul", y, size)
