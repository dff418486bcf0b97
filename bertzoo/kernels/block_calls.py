"""Calls of an encoder's blocks, which JAX traces once for all that differ in their weights alone."""

from collections.abc import Callable, Hashable
from numbers import Number
from types import FunctionType

import jax
import keras

from bertzoo import dispatch
from bertzoo._keras_hooks import is_traced, sublayers, without_autocast
from bertzoo.kernels.general import is_plain

WRAPPED = {"build", "quantize"}  # methods that Keras puts anew into each layer
SETTINGS = (Number, str, tuple, FunctionType, type(None))


@dispatch.faster(dispatch.block_caller, backend="jax")
def block_caller() -> Callable | None:
    """Traces blocks that are alike once. Tracing is most of the start of a step that XLA has compiled before; for 12
    blocks alike it takes half as long. XLA sees the same operations, and inlines them."""
    if not is_traced(jax.numpy.zeros(())):  # not within a `jit`, so each call would be compiled
        return None
    traced: dict[Hashable, Callable] = {}

    def call(block, x, **options):
        form = _form(block)
        if form is None:
            return dispatch.call_block(block, x, **options)
        if form not in traced:
            traced[form] = jax.jit(_with_weights(block))
        with without_autocast():  # as they are kept: a layer casts those that it needs in half precision
            values = [variable.value for variable in block.variables]
        return traced[form](values, x, options)

    return call


def _with_weights(block) -> Callable:
    """The block's call as a function of its weights too."""
    variables = block.variables

    def call(values, x, options):
        with without_autocast():  # it casts what it is given
            scope = keras.StatelessScope(state_mapping=list(zip(variables, values)))
        with scope:
            return dispatch.call_block(block, x, **options)

    return call


def _form(block) -> Hashable | None:
    """All that makes a block what it is, but for its weights' values; None where calls may do more than compute."""
    layers = sublayers(block)
    if not all(map(_only_computes, layers)):
        return None
    variables = tuple((variable.name, variable.shape, variable.dtype) for variable in block.variables)
    # The policy's name is one for all layers where it is a map.
    types = ((layer.dtype_policy.name, layer.compute_dtype) for layer in layers)
    return variables, tuple((type(layer), *dtypes, _attributes(layer)) for layer, dtypes in zip(layers, types))


def _only_computes(layer) -> bool:
    """Whether it adds no loss, keeps no ranges as quantized layers do, and has no method that someone put in place of
    its class's, which may keep anything."""
    plain = is_plain(layer) or not isinstance(layer, keras.layers.Dense)
    own = {name for name, value in vars(layer).items() if callable(value) and hasattr(type(layer), name)}
    return plain and layer.activity_regularizer is None and own <= WRAPPED


def _attributes(layer) -> Hashable:
    """The public attributes that are numbers, texts, tuples of them or functions."""
    kept = (name for name in vars(layer) if name[0] != "_" and name not in (*WRAPPED, "name"))
    values = ((name, getattr(layer, name)) for name in kept)
    return frozenset((name, repr(value)) for name, value in values if isinstance(value, SETTINGS))
