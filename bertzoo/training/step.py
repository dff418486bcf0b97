"""The training step of the backend in use, in two halves: a model's base class, and that of `AdamW`."""

from typing import TYPE_CHECKING

import keras

from bertzoo.backend import accelerator

BACKEND = keras.backend.backend()
if TYPE_CHECKING or BACKEND == "torch":  # to a type checker they are all alike
    from bertzoo.training.torch_step import TorchStep as BackendStep
    from bertzoo.training.torch_step import TorchUpdate as BackendUpdate
elif BACKEND == "jax":
    from bertzoo.training.jax_step import JaxStep as BackendStep
    from bertzoo.training.jax_step import JaxUpdate as BackendUpdate
else:
    from bertzoo.training.tensorflow_step import TensorFlowStep as BackendStep
    from bertzoo.training.tensorflow_step import TensorFlowUpdate as BackendUpdate

__all__ = ["BackendStep", "BackendUpdate", "should_jit_compile"]


def should_jit_compile() -> bool | str:
    """The `jit_compile` of a run of many steps: True on PyTorch with a GPU, where compiling takes minutes and pays;
    elsewhere "auto"."""
    return (BACKEND == "torch" and accelerator() is not None) or "auto"
