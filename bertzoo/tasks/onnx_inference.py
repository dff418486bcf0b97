"""Predictions by ONNX Runtime in place of the backend: on CPUs faster, and in 8 bits faster again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from bertzoo.text.encoded import PACKING

if TYPE_CHECKING:
    from bertzoo.export import OnnxModel


class OnnxInference(keras.Model):
    """A task whose forward pass may be an exported model's."""

    _onnx_model: "OnnxModel | None" = None

    @contextmanager
    def onnx_inference(self, int8: bool = False, num_threads: int | None = None) -> Iterator[None]:
        """A context in which the task's methods predict with ONNX Runtime on the CPU.

            with encoder.onnx_inference(int8=True):
                vectors = encoder.encode(texts)

        The weights are those at its beginning; `fit` is refused within it.

        Args:
            int8: Compute the dense layers of blocks in 8 bits.
            num_threads: Threads; all cores where None.

        Raises:
            ValueError: The task has no ONNX form, or in 8 bits its outputs are not like those in float32.
            ImportError: A package is missing; the `export` extra has it.
        """
        from bertzoo.export.onnx_files import build_engine

        before, self._onnx_model = self._onnx_model, build_engine(self, int8, num_threads)
        try:
            yield
        finally:
            self._onnx_model = before

    def refuse_training_by_onnx(self) -> None:
        """Raises RuntimeError within `onnx_inference`, whose weights would stay as they were."""
        if self._onnx_model is not None:
            raise RuntimeError("onnx_inference is for predictions: leave its context before fit().")

    def predict_on_batch(self, x: Any) -> Any:
        """As `keras.Model.predict_on_batch`.

        Args:
            x: The inputs.
        """
        if self._onnx_model is None:
            return super().predict_on_batch(x)
        inputs = dict(x) if isinstance(x, dict) else {"token_ids": x}
        inputs = {name: np.asarray(array) for name, array in inputs.items()}
        inputs.setdefault("padding_mask", np.ones_like(inputs["token_ids"]))
        return self.outputs_by_onnx(self._onnx_model, inputs)

    def predict_batches(self, data: keras.utils.PyDataset, **options: Any) -> Any:
        """The model's outputs in the order of the batches.

        Args:
            data: The batches.
            options: Those of `keras.Model.predict`.
        """
        if self._onnx_model is None:
            return super().predict(data, **options)
        verbose = options.get("verbose") not in (None, 0, "auto")
        outputs = self.predict_each(data, options.get("steps"), int(verbose), options.get("callbacks"))
        return keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *outputs)

    def predict_each(
        self, data: keras.utils.PyDataset, steps: int | None = None, verbose: Any = 0, callbacks: Any = None
    ) -> Iterator[Any]:
        """The model's outputs batch by batch, which may differ in shape.

        Args:
            data: The batches.
            steps: The number of batches; all where None.
            verbose, callbacks: As of `keras.Model.predict`.
        """
        steps = min(len(data), steps or len(data))
        settings = {"verbose": verbose, "epochs": 1, "steps": steps}
        callbacks = keras.callbacks.CallbackList(callbacks, add_progbar=bool(verbose), model=self, **settings)
        callbacks.on_predict_begin()
        for i in range(steps):
            callbacks.on_predict_batch_begin(i)
            outputs = self.predict_on_batch(data[i][0])
            callbacks.on_predict_batch_end(i, {"outputs": outputs})
            yield outputs
        callbacks.on_predict_end()

    def outputs_by_onnx(self, model: "OnnxModel", inputs: dict[str, np.ndarray]) -> Any:
        """The task's outputs for a batch.

        Args:
            model: The exported task.
            inputs: What `call` gets.
        """
        return run_batch(model, inputs, model.output_names[0])


def run_batch(model: "OnnxModel", inputs: dict[str, np.ndarray], name: str) -> np.ndarray:
    """One output of an exported task for a batch; outputs for tokens are as long as the batch.

    Args:
        model: The exported task.
        inputs: The encoder's inputs.
        name: The output.
    """
    read = {key: array for key, array in inputs.items() if key not in ("lengths", *PACKING)}
    output = model.run(read, [name])[name]
    if not model.is_per_token(name):
        return output
    missing = inputs["token_ids"].shape[1] - output.shape[1]
    return np.pad(output, [(0, 0), (0, missing)] + [(0, 0)] * (output.ndim - 2))
