"""Operations that have a plain formula and, on some backends and devices, faster forms.

A layer module decorates a formula in `keras.ops` with `operation`; `bertzoo.kernels` registers faster forms of it with
`faster`. Without that package every operation is its formula.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import keras

F = TypeVar("F", bound=Callable[..., Any])

# Operation -> its faster forms, in order of preference.
FORMS: dict[str, list[Callable[..., Any]]] = {}
_formulas_only = False


def operation(formula: F) -> F:
    """Makes an operation of its formula: a call takes the first registered form that applies, else the formula."""
    forms = FORMS.setdefault(formula.__name__, [])

    @functools.wraps(formula)
    def call(*args, **kwargs):
        if not _formulas_only:
            for form in forms:
                result = form(*args, **kwargs)
                if result is not None:
                    return result
        return formula(*args, **kwargs)

    return call


def faster(name: str, backend: str | None = None) -> Callable[[F], F]:
    """Registers a faster form of an operation: a function of the same arguments that returns None where it does not
    apply.

    Args:
        name: The operation.
        backend: The Keras backend that the form is for; all of them where None. Under another backend nothing is
            registered, whoever imports the module.

    Raises:
        KeyError: There is no such operation.
    """

    def register(form: F) -> F:
        forms = FORMS[name]
        if backend in (None, keras.backend.backend()):
            forms.append(form)
        return form

    return register


@contextmanager
def formulas_only() -> Iterator[None]:
    """Within it, all operations are their formulas, as for an export to a runtime that has no other forms."""
    global _formulas_only
    before, _formulas_only = _formulas_only, True
    try:
        yield
    finally:
        _formulas_only = before
