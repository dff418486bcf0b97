"""Dense layers in one operation, where the backend has one."""

import keras
from keras import ops
from keras.src.backend.common import AutocastScope


def is_plain(dense: keras.layers.Layer) -> bool:
    """Whether it is a product and perhaps a bias, and nothing else."""
    return type(dense) is keras.layers.Dense and dense.quantization_mode is None


def is_plain_for(dense: keras.layers.Layer, x) -> bool:
    """Whether it is plain and computes in the type of x: a map of dtype policies may give it another than the layer
    around it."""
    return is_plain(dense) and dense.compute_dtype == keras.backend.standardize_dtype(x.dtype)


def kept_bias(dense: keras.layers.Layer):
    """The bias in the type in which it is kept, for kernels that cast by themselves. The policy's cast is one more."""
    with AutocastScope(None):
        return ops.convert_to_tensor(dense.bias)


def linear(dense: keras.layers.Layer, x, columns: slice | None = None):
    """`dense(x)`, or these columns of it: (…, in) -> (…, out).

    On PyTorch a plain Dense layer is one operation, product and bias together; Keras's are two, and what lies between
    them goes to memory and back.
    """
    torch = keras.backend.backend() == "torch"
    kernel = ops.convert_to_tensor(dense.kernel) if (torch or columns is not None) and is_plain_for(dense, x) else None
    if kernel is None or kernel.dtype != x.dtype:  # the latter where it is called outside a layer that casts
        out = dense(x)
        return out if columns is None else out[..., columns]
    bias = None if dense.bias is None else ops.convert_to_tensor(dense.bias)
    if columns is not None:
        kernel, bias = kernel[:, columns], None if bias is None else bias[columns]
    if torch:
        from torch.nn import functional

        return functional.linear(x, kernel.t(), bias)
    product = ops.matmul(x, kernel)
    return product if bias is None else product + bias
