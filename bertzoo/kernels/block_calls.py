"""Calls of an encoder's blocks under JAX, which traces blocks that differ in their weights alone once."""

from collections.abc import Callable, Hashable
from numbers import Number
from types import FunctionType

import jax
import keras

from bertzoo import dispatch
from bertzoo._keras_hooks import is_traced, sublayers, without_autocast
from bertzoo.kernels.general import is_plain

WRAPPED = {"build", "quantize"}  # methods that Keras wraps in each instance
SETTINGS = (Number, str, tuple, FunctionType, type(None))


@dispatch.faster(dispatch.block_caller, backend="jax")
def block_caller() -> Callable | None:
    """Traces identical blocks once. Tracing is most of the start of a step that is in the compilation cache; for 12
    identical blocks it takes half as long. XLA inlines the calls and sees the same operations."""
    if not is_traced(jax.numpy.zeros(())):  # outside of `jit` each call would be compiled
        return None
    traced: dict[Hashable, Callable] = {}

    def call(block, x, **options):
        form = _form(block)
        if form is None:
            return dispatch.call_block(block, x, **options)
        if form not in traced:
            traced[form] = jax.jit(_with_weights(block))
        with without_autocast():  # as they are stored: layers cast those that they use in half precision
            values = [variable.value for variable in block.variables]
        return traced[form](values, x, options)

    return call


def _with_weights(block) -> Callable:
    """The block's call as a function of its weights and its inputs."""
    variables = block.variables

    def call(values, x, options):
        with without_autocast():  # the scope would cast the values
            scope = keras.StatelessScope(state_mapping=list(zip(variables, values)))
        with scope:
            return dispatch.call_block(block, x, **options)

    return call


def _form(block) -> Hashable | None:
    """Everything that defines a block except its weights' values; None if a call may have side effects."""
    layers = sublayers(block)
    if not all(map(_only_computes, layers)):
        return None
    variables = tuple((variable.name, variable.shape, variable.dtype) for variable in block.variables)
    # A map of dtype policies has one name for all layers.
    types = ((layer.dtype_policy.name, layer.compute_dtype) for layer in layers)
    return variables, tuple((type(layer), *dtypes, _attributes(layer)) for layer, dtypes in zip(layers, types))


def _only_computes(layer) -> bool:
    """Whether a layer adds no loss, is not quantized, and has no method replaced on the instance."""
    plain = is_plain(layer) or not isinstance(layer, keras.layers.Dense)
    own = {name for name, value in vars(layer).items() if callable(value) and hasattr(type(layer), name)}
    return plain and layer.activity_regularizer is None and own <= WRAPPED


def _attributes(layer) -> Hashable:
    """The public attributes that are numbers, strings, tuples or functions."""
    kept = (name for name in vars(layer) if name[0] != "_" and name not in (*WRAPPED, "name"))
    values = ((name, getattr(layer, name)) for name in kept)
    return frozenset((name, repr(value)) for name, value in values if isinstance(value, SETTINGS))
