"""An ONNX graph under construction: nodes, constants and weights, with names that say which layer they belong to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from bertzoo.export.onnx_graph.int8 import Int8Plan

OPSET, MICROSOFT_OPSET, IR_VERSION = 18, 1, 9
# ONNX Runtime's own operations, in the domain com.microsoft.
MICROSOFT = frozenset("FastGelu FusedMatMul Gelu MatMulIntegerToFloat RotaryEmbedding".split())  # noqa: SIM905
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}


class Graph:
    """Nodes in the order in which they are computed. A tensor is its name.

    Args:
        plan: How dense layers of blocks are computed; None for float32.
        observes: Whether to add outputs that show what the layers read, and, with a plan, how far their outputs in 8
            bits are from those in float32, which go on.

    Attributes:
        dense_layers: The names of the dense layers of blocks.
        observed: Pairs of a kind and a layer's name, and the tensor.
    """

    def __init__(self, plan: "Int8Plan | None" = None, observes: bool = False):
        self.plan, self.observes = plan, observes
        self.dense_layers: dict[str, None] = {}
        self.observed: list[tuple[tuple[str, str], str]] = []
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._constants: dict[Any, str] = {}
        self._scopes: list[str] = []
        self._used: dict[str, int] = {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Within it, the names of nodes begin with the name of a layer."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def input(self, name: str, shape: Sequence[str | int], dtype: str = "int64") -> str:
        """Adds an input; sizes that vary are names."""
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], list(shape)))
        return name

    def op(self, kind: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node; -> the name of its output, or a list of names.

        Args:
            kind: The operation.
            inputs: Names; None for an optional input that is left out; arrays and numbers become constants.
            outputs: How many outputs.
            attributes: The operation's.
        """
        name = self._unique("/".join([*self._scopes, kind]))
        names = [name] if outputs == 1 else [f"{name}:{i}" for i in range(outputs)]
        while inputs and inputs[-1] is None:  # ONNX Runtime's optimizer takes an empty last name for an input
            inputs = inputs[:-1]
        given = ["" if x is None else x if isinstance(x, str) else self.constant(x) for x in inputs]
        domain = "com.microsoft" if kind in MICROSOFT else ""
        self.nodes.append(helper.make_node(kind, given, names, name=name, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, name: str = "constant") -> str:
        """The name of a constant: an array, or a number, which is int64 or float32 by its kind. Equal ones are one."""
        array = np.asarray(value)
        if array.dtype.kind in "iuf" and not isinstance(value, (np.ndarray, np.generic)):
            array = array.astype("float32" if array.dtype.kind == "f" else "int64")
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._initializer(self._unique(name), array)
        return self._constants[key]

    def weight(self, variable: keras.Variable | None) -> str | None:
        """The name of a weight, float32, or None for None; a variable that several layers share is stored once."""
        if variable is None:
            return None
        return self.array(variable.name, lambda: keras.ops.convert_to_numpy(variable), (variable,))

    def array(self, name: str, value: Callable[[], np.ndarray], owner: tuple) -> str:
        """The name of a weight, float32 or int8, which is stored once for each owner.

        Args:
            name: Its name within the layer.
            value: Computes it.
            owner: Objects and strings.
        """
        key = tuple(part if isinstance(part, str) else id(part) for part in owner)
        if key not in self._constants:
            array = np.ascontiguousarray(value())
            array = array if array.dtype == np.int8 else array.astype("float32")
            self._constants[key] = self._initializer(self._unique("/".join([*self._scopes, name])), array)
        return self._constants[key]

    def scope_name(self) -> str:
        """The name of the layer in whose scope nodes are added."""
        return "/".join(self._scopes)

    def observe(self, kind: str, tensor: str) -> None:
        """Adds an output of the present layer."""
        self.observed.append(((kind, self.scope_name()), tensor))

    def model(self, outputs: Mapping[str, tuple[str, Sequence[str | int] | None]], metadata: Mapping[str, str]) -> Any:
        """The whole graph.

        Args:
            outputs: Name -> the tensor, and its shape where it is known.
            metadata: Text by name, that the file carries.
        """
        for name, (tensor, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [tensor], [name], name=f"output/{name}"))
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, (_, shape) in outputs.items()]
        graph = helper.make_graph(self.nodes, "bertzoo", self.inputs, infos, list(self._initializers.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", MICROSOFT_OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="bertzoo")
        helper.set_model_props(model, dict(metadata))
        return model

    def _initializer(self, name: str, array: np.ndarray) -> str:
        self._initializers[name] = numpy_helper.from_array(array, name)
        return name

    def _unique(self, name: str) -> str:
        count = self._used[name] = self._used.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"
