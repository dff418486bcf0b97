"""Activation functions by the names that Hugging Face's config.json gives them."""

from collections.abc import Callable

import keras
from keras import ops

from bertzoo.layers.linear import is_plain_for, kept_bias, linear


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


def activated(dense: keras.layers.Dense, name: str, x):
    """The function called `name` of `dense(x)`: (batch, length, in) -> (batch, length, out)."""
    function = activation(name)
    if function is _gelu_exact and keras.backend.backend() == "jax" and is_plain_for(dense, x) and dense.use_bias:
        inner = _in_one_kernel(dense, x)
        if inner is not None:
            return inner
    return function(linear(dense, x))


def _in_one_kernel(dense, x):
    from bertzoo.kernels.pallas import on_each_device, rows_for_kernels  # needs JAX

    rows = rows_for_kernels(x.shape) if x.dtype in ("bfloat16", "float16") else None
    if rows is None:
        return None
    from bertzoo.kernels.bias_gelu import biased_gelu, fits  # needs Triton

    if not fits(rows, dense.units):
        return None
    product = ops.matmul(x, ops.convert_to_tensor(dense.kernel))
    return on_each_device(biased_gelu, (True, False))(product, kept_bias(dense))
