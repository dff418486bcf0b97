"""Passes over small batches as CUDA graphs: a GPU runs their kernels without Python between them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import torch
from torch.overrides import TorchFunctionMode

from bertzoo._keras_hooks import torch_foreach

# Weights × tokens up to which Python takes longer than the kernels, and a batch little memory.
MOST_WORK = 1e12


class GraphedPass:
    """A function of a batch whose kernels are recorded once for each shape of batch and then run again.

    The first batch of a shape is computed as usual, the second is recorded. Recording is no computation: what the
    function does in Python is done in these two calls alone, as in a function that JAX or TensorFlow compiles. Where
    recording fails, because the function reads a value on the host, all is computed as usual from then on.

    Args:
        function: Called as `function(model, x, y, sample_weight, weights)`, with the tensors of the trainable weights;
            returns the log, a dict of scalars, and the gradients. It changes variables in place only.
    """

    def __init__(self, function: Callable[..., tuple[dict[str, torch.Tensor], Sequence[torch.Tensor | None]]]):
        self._function = function
        self._graphs: dict[Hashable, _Graph | None] = {}  # None: computed once, not recorded yet
        self._pool: Any = None  # the memory that all graphs share, since one runs after another
        self.can_record, self.num_recorded = True, 0

    def forget(self) -> None:
        """Frees the memory of all recordings."""
        self._graphs.clear()
        self._pool = None

    def __call__(self, model: Any, x: Any, y: Any, sample_weight: Any, weights: Sequence[torch.Tensor]) -> tuple:
        batch = (x, y, sample_weight)
        leaves = keras.tree.flatten_with_path(batch)
        tensors = [leaf for _, leaf in leaves if isinstance(leaf, torch.Tensor)]
        key = (tuple((path, _describe(leaf)) for path, leaf in leaves), tuple(map(id, weights)))
        graph = self._graphs.get(key)
        if graph is None and key in self._graphs and self.can_record and _is_small(tensors, weights):
            graph = self._record(model, batch, weights)
        self._graphs[key] = graph
        return self._function(model, *batch, weights) if graph is None else graph.run(tensors)

    def _record(self, model: Any, batch: tuple, weights: Sequence[torch.Tensor]) -> "_Graph | None":
        own = keras.tree.map_structure(
            lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, batch, none_is_leaf=False
        )
        graph = torch.cuda.CUDAGraph()
        # Another thread copies batches meanwhile, which must not end the recording.
        try:
            # The outer context restores the stream where the end of a failed recording raises.
            with (
                torch.cuda.stream(torch.cuda.current_stream()),
                torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
                _NumbersOnDevice(),
            ):
                logs, gradients = self._function(model, *own, weights)
        except RuntimeError:  # also of what the function does wrong, which it then does again as usual
            self.can_record = False
            self.forget()
            return None
        self._pool = graph.pool()
        self.num_recorded += 1
        inputs = [leaf for leaf in keras.tree.flatten(own) if isinstance(leaf, torch.Tensor)]
        return _Graph(graph, inputs, logs, gradients, weights)


@dataclass
class _Graph:
    """A recorded pass: the tensors that it reads, and those that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[torch.Tensor]
    logs: dict[str, torch.Tensor]
    gradients: Sequence[torch.Tensor | None]
    weights: Sequence[torch.Tensor]  # held, so that no other tensors get their ids

    def run(self, tensors: list[torch.Tensor]) -> tuple[dict[str, torch.Tensor], Sequence[torch.Tensor | None]]:
        """The log and the gradients of a batch; the gradients are overwritten by the next one's."""
        with torch.no_grad():
            torch_foreach("copy_")(self.inputs, tensors)
        self.graph.replay()
        return {name: value.clone() for name, value in self.logs.items()}, self.gradients


class _NumbersOnDevice(TorchFunctionMode):
    """Makes tensors of Python numbers by kernels, where PyTorch would copy them from the host or read them there."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (torch.as_tensor, torch.tensor):
            value = args[0] if args else None
            if isinstance(value, (bool, int, float)):
                return torch.full((), value, **kwargs)
            if isinstance(value, (list, tuple)) and all(isinstance(number, (int, float)) for number in value):
                return torch.stack([torch.full((), number, **kwargs) for number in value])
        if function is torch.full and isinstance(value := kwargs.get("fill_value"), torch.Tensor):
            return value.to(kwargs.get("dtype") or value.dtype).expand(kwargs["size"]).clone()
        return function(*args, **kwargs)


def _describe(leaf: Any) -> Hashable:
    """What a recording depends on: the shape of a tensor, another leaf itself."""
    return (leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else repr(leaf)


def _is_small(tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> bool:
    return max(t.numel() for t in tensors) * sum(w.numel() for w in weights) <= MOST_WORK
