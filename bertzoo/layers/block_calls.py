"""Calls of an encoder's blocks, which JAX traces once for all that differ in their weights alone."""

from collections.abc import Callable, Hashable

import keras

from bertzoo.layers.linear import is_plain


def block_calls(x) -> Callable:
    """A function (block, x, attend, relative, key) -> x, for the blocks of one call of an encoder.

    Tracing is most of what a step that XLA has compiled before takes to start; of 12 blocks alike it is halved so. XLA
    sees the same operations, and inlines them.
    """
    if keras.backend.backend() != "jax":
        return _call
    import jax

    if not isinstance(x, jax.core.Tracer):  # each call by itself would be compiled
        return _call
    traced = {}

    def call(block, x, attend, relative, key):
        form = _form(block)
        if form is None:
            return _call(block, x, attend, relative, key)
        if form not in traced:
            traced[form] = jax.jit(_with_weights(block))
        return traced[form]([variable.value for variable in block.variables], x, attend, relative, key)

    return call


def _call(block, x, attend, relative, key):
    return block(x, attend=attend, relative=relative, key=key)


def _with_weights(block) -> Callable:
    """The block's call as a function of its weights too."""
    variables = block.variables

    def call(values, x, attend, relative, key):
        with keras.StatelessScope(state_mapping=list(zip(variables, values))):
            return _call(block, x, attend, relative, key)

    return call


def _form(block) -> Hashable | None:
    """All that makes a block what it is, but for its weights' values; None where a call may change more than its output
    (quantized layers keep ranges of what they have seen)."""
    layers = block._flatten_layers()
    if any(isinstance(layer, keras.layers.Dense) and not is_plain(layer) for layer in layers):
        return None
    variables = tuple((variable.name, variable.shape, variable.dtype) for variable in block.variables)
    return variables, tuple((type(layer), layer.dtype_policy.name, *_attributes(layer)) for layer in layers)


def _attributes(layer) -> tuple[Hashable, ...]:
    """Values of its public attributes that are numbers, texts or functions, and the names of all, so that a method
    which someone has put into one layer counts."""
    named = {name: getattr(value, "__qualname__", value) for name, value in vars(layer).items() if name[0] != "_"}
    plain = {name: value for name, value in named.items() if isinstance(value, (bool, int, float, str, type(None)))}
    return frozenset(vars(layer)), frozenset(item for item in plain.items() if item[0] != "name")
