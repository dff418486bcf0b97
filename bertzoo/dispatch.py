"""Operations that have a plain formula and, on some backends and devices, faster forms.

A layer decorates a formula in `keras.ops` with `dispatched_operation`; a module of `bertzoo.kernels` registers a faster
form of it with `register_faster_form`. Without that package every operation is its formula.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

import keras

from bertzoo.types import Tensor

P = ParamSpec("P")
R = TypeVar("R")

# Operation -> its faster forms, in order of preference.
FORMS: dict[Callable[..., Any], list[Callable[..., Any]]] = {}
_formulas_only = False


def dispatched_operation(formula: Callable[P, R]) -> Callable[P, R]:
    """Turns a formula into an operation: a call uses the first registered form that applies, else the formula."""
    forms: list[Callable[..., Any]] = []

    @functools.wraps(formula)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _formulas_only:
            for form in forms:
                result = form(*args, **kwargs)
                if result is not None:
                    return result
        return formula(*args, **kwargs)

    FORMS[call] = forms
    return call


def register_faster_form(
    operation: Callable[..., Any], backend: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Registers a faster form of an operation: a function of the same arguments that returns None where it does not
    apply.

    Args:
        operation: The operation.
        backend: The Keras backend that the form is for; all of them where None. Under another backend nothing is
            registered.
    """

    def register(form: Callable[P, R]) -> Callable[P, R]:
        if backend in (None, keras.backend.backend()):
            FORMS[operation].append(form)
        return form

    return register


def load_kernels() -> None:
    """Imports `bertzoo.kernels`, if it is there, which registers the faster forms.

    `bertzoo.layers` calls this when it is imported, so that every operation has its forms before its first call: in the
    middle of a graph PyTorch's compiler can't import modules.
    """
    if find_spec("bertzoo.kernels") is not None:
        import_module("bertzoo.kernels")


@contextmanager
def use_formulas_only() -> Iterator[None]:
    """A context in which all operations are their formulas, as for an export to another runtime."""
    global _formulas_only
    before, _formulas_only = _formulas_only, True
    try:
        yield
    finally:
        _formulas_only = before


# ---- calls of an encoder's blocks


def call_block(block: keras.layers.Layer, x: Tensor, **options: Any) -> Tensor:
    """The block's output; the options are those of its `call`."""
    return block(x, **options)


@dispatched_operation
def make_block_caller() -> Callable[..., Tensor]:
    """The `call_block` of one forward pass. Under JAX, blocks that are alike are traced once."""
    return call_block


def rematerialize_block_calls(block_call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same call, with what is inside a block computed anew in the backward pass instead of stored."""

    def call_again(block, x, key, position_bias, **options):
        # Tensors with gradients are arguments: TensorFlow's recomputation gives no gradient to those in a closure.
        tensors = (x, key) if position_bias is None else (x, key, position_bias)

        def call(x, key, bias=None):
            return block_call(block, x, key=key, position_bias=bias, **options)

        return keras.remat(call)(*tensors)

    return call_again
