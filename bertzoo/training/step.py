"""The training step that the backend needs, mixed into every model that trains."""

import keras

if keras.backend.backend() == "torch":
    from bertzoo.training.torch_step import TorchStep as BackendStep
else:

    class BackendStep:
        """Keras compiles the whole step on JAX and TensorFlow."""

        def on_device(self, data: keras.utils.PyDataset) -> keras.utils.PyDataset:
            """The dataset itself: these backends copy a batch while they compute another."""
            return data


__all__ = ["BackendStep"]
