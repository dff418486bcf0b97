"""Activation functions by the names that Hugging Face's config.json gives them."""

from collections.abc import Callable

import keras
from keras import ops


def _gelu_exact(x):
    if keras.backend.backend() != "jax":
        return ops.gelu(x, approximate=False)
    from bertzoo.layers.gelu import gelu  # needs JAX

    return gelu(x)


def _gelu_tanh(x):
    return ops.gelu(x, approximate=True)


# gelu_fast writes sqrt(2 / pi) with ten digits: the same float32 number.
ACTIVATIONS: dict[str, Callable] = {
    "gelu": _gelu_exact,
    "gelu_python": _gelu_exact,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "relu": ops.relu,
    "silu": ops.silu,
    "swish": ops.silu,
    "tanh": ops.tanh,
}


def activation(name: str) -> Callable:
    """The function for a `hidden_act` of config.json; "gelu" is the exact one.

    Raises:
        ValueError: The name is not known.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; it is {name!r}.")
    return ACTIVATIONS[name]
