"""The training step that the backend needs, mixed into every model that trains."""

import keras

from bertzoo.accelerator import accelerator

if keras.backend.backend() == "torch":
    from bertzoo.training.torch_step import TorchStep as BackendStep
else:

    class BackendStep:
        """Keras compiles the whole step on JAX and TensorFlow."""

        def __setattr__(self, name, value):
            # JAX's trainer puts the state here at each step, hundreds of arrays. Keras would look at each for something
            # to track, and copy their lists: a millisecond for BERT-base, while a GPU waits for the next short step.
            if name == "_jax_state":
                object.__setattr__(self, name, value)
            else:
                super().__setattr__(name, value)

        def on_device(self, data: keras.utils.PyDataset) -> keras.utils.PyDataset:
            """The dataset itself: these backends copy a batch while they compute another."""
            return data


def long_run() -> bool | str:
    """`jit_compile` for a run of many steps: PyTorch compiles for minutes, and only where it is told to. On a GPU that
    pays; elsewhere Keras decides."""
    return (keras.backend.backend() == "torch" and accelerator() is not None) or "auto"


__all__ = ["BackendStep", "long_run"]
