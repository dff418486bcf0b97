"""The training step that the backend needs, mixed into every model that trains."""

import keras

from bertzoo.accelerator import accelerator

if keras.backend.backend() == "torch":
    from bertzoo.training.torch_step import TorchStep as BackendStep
elif keras.backend.backend() == "jax":
    from bertzoo.training.jax_step import JaxStep as BackendStep
else:
    from bertzoo.training.calls import Calls

    class BackendStep(Calls):
        """On TensorFlow Keras compiles the whole step."""

        def to_device(self, data: keras.utils.PyDataset) -> keras.utils.PyDataset:
            """The dataset itself: TensorFlow copies a batch while it computes another."""
            return data


def should_jit_compile() -> bool | str:
    """The `jit_compile` of a run of many steps: True on PyTorch with a GPU, where compiling takes minutes and pays;
    elsewhere "auto"."""
    return (keras.backend.backend() == "torch" and accelerator() is not None) or "auto"


__all__ = ["BackendStep", "should_jit_compile"]
