"""Faster forms of operations, for one backend or one device: importing this package registers them.

Without it everything runs, slower.
"""

import keras

from bertzoo.kernels import general

__all__ = ["general"]

if keras.backend.backend() == "jax":
    from bertzoo.kernels import block_calls, jax_attention, jax_gpu
    from bertzoo.kernels import gelu as gelu

    __all__ += ["block_calls", "gelu", "jax_attention", "jax_gpu"]
elif keras.backend.backend() == "torch":
    from bertzoo.kernels import torch_attention

    __all__ += ["torch_attention"]
