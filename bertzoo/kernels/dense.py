"""Dense layers in one operation, where the backend has one."""

import keras
from keras import ops

from bertzoo._keras_hooks import without_autocast
from bertzoo.dispatch import faster
from bertzoo.layers import dense as _dense  # noqa: F401 (the operation)
from bertzoo.types import Tensor


def is_plain(dense: keras.layers.Layer) -> bool:
    """Whether it is a product and perhaps a bias, and nothing else."""
    return type(dense) is keras.layers.Dense and dense.quantization_mode is None


def is_plain_for(dense: keras.layers.Layer, x: Tensor) -> bool:
    """Whether it is plain and computes in the type of x: a map of dtype policies may give it another than the layer
    around it."""
    return is_plain(dense) and dense.compute_dtype == keras.backend.standardize_dtype(x.dtype)


def kept_bias(dense: keras.layers.Layer) -> Tensor:
    """The bias in the type in which it is kept, for kernels that cast by themselves. The policy's cast is one more."""
    with without_autocast():
        return ops.convert_to_tensor(dense.bias)


@faster("linear")
def linear(dense: keras.layers.Layer, x: Tensor, columns: slice | None = None) -> Tensor | None:
    """On PyTorch, product and bias in one operation: Keras's are two, and what lies between them goes to memory and
    back. Elsewhere only the columns that are needed."""
    torch = keras.backend.backend() == "torch"
    if not (torch or columns is not None) or not is_plain_for(dense, x):
        return None
    kernel = ops.convert_to_tensor(dense.kernel)
    if kernel.dtype != x.dtype:  # outside a layer that casts
        return None
    bias = None if dense.bias is None else ops.convert_to_tensor(dense.bias)
    if columns is not None:
        kernel, bias = kernel[:, columns], None if bias is None else bias[columns]
    if torch:
        from torch.nn import functional

        return functional.linear(x, kernel.t(), bias)
    product = ops.matmul(x, kernel)
    return product if bias is None else product + bias
