"""Dense layers in one operation, where the backend has one."""

import keras
from keras import ops
from keras.src.backend import AutocastScope


def is_plain(dense: keras.layers.Layer) -> bool:
    """Whether it is a product and perhaps a bias, and nothing else."""
    return type(dense) is keras.layers.Dense and dense.quantization_mode is None


def kept_bias(dense: keras.layers.Layer):
    """The bias in the type in which it is kept, for kernels that cast by themselves. The policy's cast is one more."""
    with AutocastScope(None):
        return ops.convert_to_tensor(dense.bias)


def linear(dense: keras.layers.Layer, x):
    """`dense(x)`: (…, in) -> (…, out).

    On PyTorch a plain Dense layer is one operation, product and bias together; Keras's are two, and what lies between
    them goes to memory and back. For use inside a layer of the same dtype policy.
    """
    if keras.backend.backend() != "torch" or not is_plain(dense):
        return dense(x)
    from torch.nn import functional

    kernel = ops.convert_to_tensor(dense.kernel)
    if kernel.dtype != x.dtype:  # called outside a layer that casts
        return dense(x)
    return functional.linear(x, kernel.t(), None if dense.bias is None else ops.convert_to_tensor(dense.bias))
