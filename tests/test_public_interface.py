"""Every public name is documented in Google form, annotated, and in the reference."""

import inspect
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

import bertzoo as bz

MODULES = (
    "adapters",
    "analysis",
    "data",
    "layers",
    "losses",
    "metrics",
    "pretraining",
    "retrieval",
    "text",
    "training",
)
# (batch, length, hidden), (n,), (…, width): how docstrings write shapes.
SHAPE = re.compile(r"\((?:[\w*+ …]+,)+(?: ?[\w*+ …]+)?\)")
NOT_ARGUMENTS = {"self", "cls", "args", "kwargs"}


def public_names():
    yield from ((f"bz.{name}", getattr(bz, name)) for name in bz.__all__ if name not in MODULES)
    for name in MODULES:
        module = import_module(f"bertzoo.{name}")
        yield from ((f"bz.{name}.{member}", getattr(module, member)) for member in getattr(module, "__all__", ()))


def public_functions():
    """The public functions, and the public methods that public classes define themselves."""
    for name, value in public_names():
        if inspect.isclass(value):
            yield name, value.__init__ if "__init__" in vars(value) else None, value
            for key, method in vars(value).items():
                function = getattr(method, "__func__", method)
                if not key.startswith("_") and inspect.isfunction(function):
                    yield f"{name}.{key}", function, None
        elif inspect.isfunction(value):
            yield name, value, None


NAMES = dict(public_names())
FUNCTIONS = {name: (function, owner) for name, function, owner in public_functions() if function is not None}


@pytest.mark.once
@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_docstrings(name):
    value = NAMES[name]
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__ and value.__doc__.strip() and not value.__doc__.startswith(f"{value.__name__}(")


@pytest.mark.once
@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_are_annotated_and_documented(name):
    function, owner = FUNCTIONS[name]
    parameters = {
        key: parameter
        for key, parameter in inspect.signature(function).parameters.items()
        if key not in NOT_ARGUMENTS and not key.startswith("_")
    }
    missing = [key for key, parameter in parameters.items() if parameter.annotation is parameter.empty]
    assert not missing, f"without annotation: {missing}"
    if owner is None:
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty, "no return annotation"
    documentation = inspect.getdoc(owner or function) or ""  # of the method that it overrides, if it has none
    if overrides_keras(name, function):
        return
    # A function that its first line says whole needs no list of its one argument.
    if len(parameters) > 1:
        unknown = [key for key in parameters if not re.search(rf"\b{re.escape(key)}\b", documentation)]
        assert not unknown, f"not in the docstring: {unknown}"
        assert "Args:" in documentation, "no section Args"
    if any(holds_arrays(parameter.annotation) for parameter in parameters.values()):
        assert SHAPE.search(documentation), "arrays go in or out, and the docstring gives no shape"


@pytest.mark.once
def test_public_names_are_in_the_reference():
    pages = Path(bz.__file__).resolve().parents[1].glob("docs/reference/*.rst")
    text = "\n".join(page.read_text("utf-8") for page in pages)
    entries = re.findall(r"^\.\. (?:autoclass|autofunction|py:data):: bertzoo\.([\w.]+)$", text, re.MULTILINE)
    assert len(entries) == len(set(entries))
    described = {id(attrgetter(name)(bz)) for name in entries}
    modules = {name: getattr(bz, name) for name in bz.__all__ if inspect.ismodule(getattr(bz, name))}
    names = {name: getattr(bz, name) for name in bz.__all__ if name not in modules}
    for module in modules:
        names |= {f"{module}.{name}": getattr(modules[module], name) for name in modules[module].__all__}
    assert not [name for name, value in names.items() if id(value) not in described]


def overrides_keras(name: str, function) -> bool:
    """Whether it is a method whose meaning is Keras's, such as `call` and `get_config`."""
    return "." in name and function.__name__ in KERAS_METHODS


KERAS_METHODS = {
    "build",
    "call",
    "compute_loss",
    "compute_mask",
    "compute_metrics",
    "compute_output_shape",
    "compute_output_spec",
    "from_config",
    "get_build_config",
    "get_config",
    "on_epoch_begin",
    "on_epoch_end",
    "on_train_batch_end",
    "on_train_begin",
    "on_train_end",
}


def holds_arrays(annotation) -> bool:
    return annotation is np.ndarray or "ndarray" in str(annotation)
