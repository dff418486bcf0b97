"""Exports encoders and tasks, and runs what was exported before it gets its place.

| backend | SavedModel | ONNX |
|---|---|---|
| TensorFlow | by Keras | written from the weights |
| JAX | by Keras, through jax2tf (needs TensorFlow) | written from the weights |
| PyTorch | no | written from the weights |
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo.checkpoints.files import expand_user
from bertzoo.export import onnx_files
from bertzoo.export.saved_model import PositionalModel, check_saved_model, write_saved_model

SAVED_MODEL, ONNX = "tf_saved_model", "onnx"
INPUT_DTYPES = ("int32", "int64")
SAVED_MODEL_BACKENDS = ("tensorflow", "jax")


def export_model(
    model: keras.Model,
    filepath: str | os.PathLike,
    format: str = SAVED_MODEL,
    verbose: bool = False,
    input_dtype: str | None = None,
    int8: bool = False,
    **options: Any,
) -> None:
    """Writes an encoder or a task as a SavedModel or as ONNX.

    The export is run on a batch, and is moved to `filepath` only if it gives the model's outputs.

    - A SavedModel is a directory. It is called as `tf.saved_model.load(path).serve(token_ids, …)`, with `token_ids`,
      then `segment_ids` if the family has segments, then `padding_mask`; it gives the model's outputs.
    - ONNX is a directory with `model.onnx`, the tokenizer's files and config.json, for `bertzoo.export.OnnxModel`,
      `bertzoo serve` and other clients of ONNX; or, if the name ends in `.onnx`, that file alone. Inputs are
      Hugging Face's, `input_ids`, `attention_mask` and, if the family has segments, `token_type_ids`, int64.

    Inputs are (batch, length), or (batch, choices, length) for multiple choice, at any batch size and any length up to
    the model's positions. Outputs are those at inference, float32.

    Args:
        model: The encoder or task.
        filepath: Where to.
        format: "tf_saved_model" or "onnx". Other formats ("openvino", "litert", "torch") are passed on to Keras,
            and not tested.
        verbose: Print what the exporter of Keras prints.
        input_dtype: The integers of a SavedModel's inputs: "int32", the default, or "int64" as Hugging Face's
            tokenizers return.
        int8: For ONNX, add `model_int8.onnx`, with products in 8 bits; see `bertzoo.export.quantization`.
        options: Options of Keras's exporter of the format.

    Raises:
        ValueError: `input_dtype` or the format is unknown, the running backend cannot write it, or the format is ONNX
            and a layer has no ONNX form, is quantized or computes in half precision.
        RuntimeError: The export can't be run, or gives other outputs.
        ImportError: A package that the format needs is missing; the `export` extra has them.

    Example:
        >>> encoder = bz.SentenceEncoder.from_preset("sentence_mini_en", verbose=False)
        >>> encoder.export("encoder", format="onnx")  # calls this function
        >>> model = bz.export.OnnxModel.from_directory("encoder")
        >>> model.run(model.tokenizer.encode(["a text"]))["sentence_embedding"].shape
        (1, 256)
    """
    target = expand_user(filepath)
    if input_dtype is not None and (input_dtype not in INPUT_DTYPES or format == ONNX):
        allowed = "left out for ONNX, whose inputs are int64" if format == ONNX else f"one of {', '.join(INPUT_DTYPES)}"
        raise ValueError(f"input_dtype must be {allowed}. Received: {input_dtype!r}.")
    if format == ONNX:
        if options:
            raise TypeError(f"ONNX takes no options but int8. Received: {', '.join(options)}.")
        onnx_files.export_onnx(model, target, int8)
        return
    if int8:
        raise ValueError(f"int8=True is for ONNX. Received: format={format!r}.")
    backend = keras.backend.backend()
    if format == SAVED_MODEL and backend not in SAVED_MODEL_BACKENDS:
        raise ValueError(
            f"the {backend} backend can't export {format}; tensorflow and jax can. Save the model with save_to_preset "
            "and load it with KERAS_BACKEND=tensorflow."
        )
    _export_with_keras(PositionalModel(model, input_dtype or "int32"), target, format, {"verbose": verbose, **options})


def _export_with_keras(wrapper: PositionalModel, target: Path, format: str, options: dict[str, Any]) -> None:
    wrapper(*[np.ones((2, 3, 4)[: len(wrapper.axes)], "int32")] * len(wrapper.names))
    target.parent.mkdir(parents=True, exist_ok=True)
    if format != SAVED_MODEL:
        wrapper.export(str(target), format=format, input_signature=list(wrapper.signature), **options)
        return
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export") as folder:
        path = Path(folder) / target.name
        try:
            write_saved_model(wrapper, str(path), options)
            check_saved_model(wrapper, path)
        except ImportError as error:
            raise ImportError(
                f'{error}. Exports need the extra "export"; in the clone of this project: pip install -e ".[export]"'
            ) from error
        shutil.copytree(path, target, dirs_exist_ok=True)
