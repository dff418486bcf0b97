"""Dense layers and the activations that follow them."""

from collections.abc import Callable

import keras
from keras import ops

from bertzoo.dispatch import operation
from bertzoo.types import Tensor


@operation
def linear(dense: keras.layers.Layer, x: Tensor, columns: slice | None = None) -> Tensor:
    """`dense(x)`, or these columns of it: (…, in) -> (…, out)."""
    out = dense(x)
    return out if columns is None else out[..., columns]


@operation
def gelu(x: Tensor) -> Tensor:
    """x Φ(x), with Φ the normal distribution's function (Hendrycks and Gimpel 2016): same shape as x."""
    return ops.gelu(x, approximate=False)


def _gelu_tanh(x):
    return ops.gelu(x, approximate=True)


# By the names in Hugging Face's config.json. gelu_fast writes sqrt(2 / pi) with ten digits: the same float32 number.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_python": gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "relu": ops.relu,
    "silu": ops.silu,
    "swish": ops.silu,
    "tanh": ops.tanh,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function for a `hidden_act` of config.json; "gelu" is the exact one.

    Raises:
        ValueError: The name is not known.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"Expected an activation of {', '.join(ACTIVATIONS)}. Received: {name!r}.")
    return ACTIVATIONS[name]


@operation
def dense_activation(dense: keras.layers.Layer, name: str, x: Tensor) -> Tensor:
    """The activation `name` of `dense(x)`: (batch, length, in) -> (batch, length, out)."""
    return activation(name)(linear(dense, x))
