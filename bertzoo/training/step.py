"""The training step of the backend in use, in two halves: a model's base class, and that of `AdamW`."""

from typing import TYPE_CHECKING

import keras

from bertzoo.backend import accelerator_name

BACKEND = keras.backend.backend()
if TYPE_CHECKING or BACKEND == "torch":  # to a type checker they are all alike
    from bertzoo.training.torch_step import TorchModel as BackendModel
    from bertzoo.training.torch_step import TorchOptimizer as BackendOptimizer
elif BACKEND == "jax":
    from bertzoo.training.jax_step import JaxModel as BackendModel
    from bertzoo.training.jax_step import JaxOptimizer as BackendOptimizer
else:
    from bertzoo.training.tensorflow_step import TensorFlowModel as BackendModel
    from bertzoo.training.tensorflow_step import TensorFlowOptimizer as BackendOptimizer

__all__ = ["BackendModel", "BackendOptimizer", "jit_compile_setting"]


def jit_compile_setting() -> bool | str:
    """The `jit_compile` of a run of many steps: True with a GPU, where PyTorch then compiles for minutes and JAX always
    searches for the fastest kernels, both of which pay; elsewhere "auto"."""
    return (BACKEND != "tensorflow" and accelerator_name() is not None) or "auto"
