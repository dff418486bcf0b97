"""Which form of an operation a call takes."""

import keras
import pytest

from bertzoo import dispatch


@pytest.fixture
def double():
    @dispatch.operation
    def double_for_this_test(x):
        return 2 * x

    yield double_for_this_test
    del dispatch.FORMS["double_for_this_test"]


def test_the_first_form_that_applies_is_taken(double):
    @dispatch.faster("double_for_this_test")
    def of_even_numbers(x):
        return "even" if x % 2 == 0 else None

    assert double(2) == "even" and double(3) == 6
    with dispatch.formulas_only():
        assert double(2) == 4


def test_forms_for_another_backend_are_not_registered(double):
    here = keras.backend.backend()

    @dispatch.faster("double_for_this_test", backend="torch" if here == "jax" else "jax")
    def elsewhere(x):
        return "elsewhere"

    assert double(1) == 2

    @dispatch.faster("double_for_this_test", backend=here)
    def form(x):
        return "here"

    assert double(1) == "here"


def test_unknown_operations_are_refused():
    with pytest.raises(KeyError):
        dispatch.faster("no_such_operation")(len)
