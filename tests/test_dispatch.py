"""Which form of an operation a call takes."""

import keras
import numpy as np
import pytest

from bertzoo import dispatch, layers


@pytest.fixture
def double():
    @dispatch.dispatched_operation
    def double_for_this_test(x):
        return 2 * x

    yield double_for_this_test
    del dispatch.FORMS[double_for_this_test]


def test_the_first_form_that_applies_is_taken(double):
    @dispatch.register_faster_form(double)
    def of_even_numbers(x):
        return "even" if x % 2 == 0 else None

    assert double(2) == "even" and double(3) == 6
    with dispatch.use_formulas_only():
        assert double(2) == 4


def test_forms_for_another_backend_are_not_registered(double):
    here = keras.backend.backend()

    @dispatch.register_faster_form(double, backend="torch" if here == "jax" else "jax")
    def elsewhere(x):
        return "elsewhere"

    assert double(1) == 2

    @dispatch.register_faster_form(double, backend=here)
    def form(x):
        return "here"

    assert double(1) == "here"


def test_unknown_operations_are_refused():
    with pytest.raises(KeyError):
        dispatch.register_faster_form(len)(len)


@pytest.mark.slow
def test_a_bare_layer_takes_the_fast_forms(backend, python):
    """Without an encoder: importing the layers registers the forms of this backend."""
    code = (
        "from bertzoo import dispatch, layers; "
        "print(*(len(dispatch.FORMS[f]) for f in (layers.dot_product_attention, layers.functional.apply_dense)))"
    )
    assert python(code).split() == ["0" if backend == "tensorflow" else "1", "1"]


def test_a_bare_layer_calls_them():
    calls = []
    operation = layers.attention.dot_product_attention
    dispatch.FORMS[operation].insert(0, lambda *args: calls.append(args))
    try:
        layers.SelfAttention(8, 2)(np.ones((1, 3, 8), "float32"))
    finally:
        del dispatch.FORMS[operation][0]
    assert len(calls) == 1
