"""TensorFlow's SavedModel: under TensorFlow by Keras, under JAX through jax2tf.

Keras itself takes on JAX the lengths of two inputs for two different numbers.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo.dispatch import use_formulas_only
from bertzoo.export.checks import check_equal, example_inputs
from bertzoo.types import Tensor


class PositionalModel(keras.Model):
    """A model with separate inputs of any integer type in a fixed order: exporters do not support dicts of inputs.

    Args:
        model: The encoder or task.
        input_dtype: The type of the inputs.
    """

    def __init__(self, model: keras.Model, input_dtype: str):
        super().__init__(name=f"exported_{model.name}")
        self.model = model
        config = getattr(model, "backbone", model).config
        self.names = ("token_ids", *(("segment_ids",) if config.type_vocab_size > 1 else ()), "padding_mask")
        has_choices = "multiple_choice" in getattr(model, "heads", ())
        self.axes = ("batch", "choices", "length") if has_choices else ("batch", "length")
        self.max_length, self.vocab_size = config.max_length, config.vocab_size
        shape = (None,) * len(self.axes)
        self.signature = tuple(keras.InputSpec(shape=shape, dtype=input_dtype, name=name) for name in self.names)

    def call(self, *arrays: Tensor) -> Tensor | dict[str, Tensor]:
        arrays = keras.tree.flatten(arrays)  # TensorFlow traces it with all inputs in one list too
        return self.model({name: keras.ops.cast(array, "int32") for name, array in zip(self.names, arrays)})


def write_saved_model(wrapper: PositionalModel, path: str, options: dict[str, Any]) -> None:
    """Writes a SavedModel; the options are those of Keras's exporter."""
    on_jax = keras.backend.backend() == "jax"
    verbose = options.pop("verbose")
    if on_jax:
        options["jax2tf_kwargs"] = {
            "native_serialization": True,
            "polymorphic_shapes": [f"({', '.join(wrapper.axes)})"] * len(wrapper.names),
            "polymorphic_constraints": [f"length <= {wrapper.max_length}"],
            "with_gradient": False,
        }
    # The wrapper itself is not tracked: TensorFlow would also trace it with all inputs in one list.
    archive = keras.export.ExportArchive()
    archive.track(wrapper.model)
    # TensorFlow 2.21 can't read the operation erf, which the faster form of GELU under JAX has.
    with use_formulas_only() if on_jax else nullcontext():
        archive.add_endpoint("serve", wrapper.call, input_signature=list(wrapper.signature), **options)
        archive.write_out(path, verbose=verbose)


def check_saved_model(wrapper: PositionalModel, path: Path) -> None:
    """Runs a SavedModel on rows of other lengths than the exporter saw.

    Raises:
        RuntimeError: It does not run, or gives other outputs than the model.
    """
    import tensorflow as tf

    inputs, mask = example_inputs(wrapper.model)
    try:
        loaded = tf.saved_model.load(str(path))
        given = (inputs[spec.name].astype(spec.dtype) for spec in wrapper.signature)
        outputs = [np.asarray(value, "float32") for value in keras.tree.flatten(loaded.serve(*given))]
    except Exception as error:
        raise RuntimeError(f"the exported model does not run, so nothing was written: {error}") from error
    expected = keras.tree.flatten(wrapper.model.predict_on_batch(inputs))
    check_equal(expected, outputs, mask, 1e-3 if wrapper.model.compute_dtype == "float32" else 0.1)
