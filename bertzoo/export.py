"""Models as files that run without bertzoo, at any batch size and length: TensorFlow's SavedModel, and ONNX.

| backend | SavedModel | ONNX |
|---|---|---|
| TensorFlow | by Keras | by Keras, through tf2onnx |
| JAX | by Keras, through jax2tf (needs TensorFlow) | no |
| PyTorch | no | by PyTorch's own exporter |

Keras itself fixes the length on PyTorch, and on JAX takes the lengths of two inputs for two different numbers. A preset
written on one backend loads on any other, so each format is one load away.
"""

import os
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo.checkpoints.files import expand_user
from bertzoo.dispatch import use_formulas_only
from bertzoo.types import Tensor

SAVED_MODEL, ONNX = "tf_saved_model", "onnx"
INPUT_DTYPES = ("int32", "int64")
_MAKERS = {SAVED_MODEL: ("tensorflow", "jax"), ONNX: ("tensorflow", "torch")}
# Beyond this, protobuf cannot hold the weights, and they go into a second file.
_LARGEST_FILE = 2**31 - 2**24


class _PositionalModel(keras.Model):
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


def export_model(
    model: keras.Model,
    filepath: str | os.PathLike,
    format: str = SAVED_MODEL,
    verbose: bool = False,
    input_dtype: str = "int32",
    **options: Any,
) -> None:
    """Writes an encoder or a task as a SavedModel (a directory) or as ONNX (a file).

    The export is loaded and run on a batch of another size, and is moved to `filepath` only if it gives the model's
    outputs. The exported model takes `token_ids`, then `segment_ids` if the family has segments, then `padding_mask`,
    each (batch, length), or (batch, choices, length) for multiple choice, at any batch size and any length up to the
    model's positions. A SavedModel is called as `tf.saved_model.load(path).serve(token_ids, …)`. The outputs are those
    at inference: float32 logits, or an encoder's `sequence_output` and `pooled_output`.

    Args:
        model: The encoder or task.
        filepath: Where to.
        format: "tf_saved_model" or "onnx". Other formats ("openvino", "litert", "torch") are passed on to Keras,
            and not tested.
        verbose: Print what the exporter prints.
        input_dtype: "int32", or "int64" as Hugging Face's tokenizers return.
        options: Options of Keras's exporter of the format, such as `opset_version` of ONNX.

    Raises:
        ValueError: `input_dtype` or the format is unknown, the running backend cannot write it, or the format is ONNX
            and the model computes in half precision.
        RuntimeError: The export can't be run, or gives other outputs.
        ImportError: A package that the format needs is missing; the `export` extra has them.
    """
    if input_dtype not in INPUT_DTYPES:
        raise ValueError(f"input_dtype must be one of {', '.join(INPUT_DTYPES)}. Received: {input_dtype!r}.")
    backend = keras.backend.backend()
    if backend not in _MAKERS.get(format, (backend,)):
        raise ValueError(
            f"the {backend} backend can't export {format}; {' and '.join(_MAKERS[format])} can. Save the model with "
            f"save_to_preset and load it with KERAS_BACKEND={_MAKERS[format][0]}."
        )
    if format == ONNX and model.compute_dtype != "float32":
        raise ValueError(f"ONNX needs a model that computes in float32. Received: {model.compute_dtype}.")
    wrapper = _PositionalModel(model, input_dtype)
    example = wrapper(*[np.ones((2, 3, 4)[: len(wrapper.axes)], "int32")] * len(wrapper.names))
    target = expand_user(filepath)
    target.parent.mkdir(parents=True, exist_ok=True)
    options["verbose"] = verbose
    if format not in _MAKERS:
        wrapper.export(str(target), format=format, input_signature=list(wrapper.signature), **options)
        return
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export") as folder:
        path = Path(folder) / target.name
        try:
            if format == SAVED_MODEL:
                _saved_model(wrapper, str(path), options)
            elif backend == "torch":
                _torch_onnx(wrapper, str(path), list(example) if isinstance(example, dict) else ["logits"], options)
            else:
                _register_tf2onnx_operations()
                wrapper.export(str(path), format=format, input_signature=list(wrapper.signature), **options)
            _check_outputs(wrapper, path, format)
        except ImportError as error:
            raise ImportError(
                f'{error}. Exports need the extra "export"; in the clone of this project: pip install -e ".[export]"'
            ) from error
        for file in Path(folder).iterdir():
            if file.is_dir():
                shutil.copytree(file, target, dirs_exist_ok=True)
            else:
                os.replace(file, target.parent / file.name)


def _check_outputs(wrapper: _PositionalModel, path: Path, format: str) -> None:
    """Runs the export on rows of other lengths than the exporter saw.

    Raises:
        RuntimeError: It does not run, or gives other outputs than the model.
    """
    rng, shape = np.random.default_rng(0), (3, 2, 5)[-len(wrapper.axes) :]
    shape = (*shape[:-1], min(shape[-1], wrapper.max_length))
    mask = np.arange(shape[-1]) < rng.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    ids = rng.integers(0, wrapper.vocab_size, shape)
    arrays = {"token_ids": ids, "segment_ids": np.zeros(shape), "padding_mask": mask}
    expected = wrapper.model.predict_on_batch({name: arrays[name].astype("int32") for name in wrapper.names})
    try:
        outputs = _run(path, format, {spec.name: arrays[spec.name].astype(spec.dtype) for spec in wrapper.signature})
    except ImportError:
        raise
    except Exception as error:
        raise RuntimeError(f"the model exported as {format} does not run, so nothing was written: {error}") from error
    bound = 1e-3 if wrapper.model.compute_dtype == "float32" else 0.1
    for reference, output in zip(keras.tree.flatten(expected), outputs, strict=True):
        if reference.shape[:-1] == mask.shape:  # outputs at padding do not matter
            reference, output = reference[mask], output[mask]
        largest = bound * max(1, np.abs(reference).max())
        if reference.shape != output.shape or not np.allclose(reference, output, rtol=bound, atol=largest):
            raise RuntimeError(
                f"the model exported as {format} gives other outputs than the model, so nothing was written."
            )


def _run(path: Path, format: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    if format == ONNX:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        arrays = dict(zip([node.name for node in session.get_inputs()], inputs.values()))
        outputs = dict(zip([node.name for node in session.get_outputs()], session.run(None, arrays)))
    else:
        import tensorflow as tf

        loaded = tf.saved_model.load(str(path))
        outputs = loaded.serve(*inputs.values())
    return [np.asarray(value, "float32") for value in keras.tree.flatten(outputs)]


def _saved_model(wrapper: _PositionalModel, path: str, options: dict[str, Any]) -> None:
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


def _torch_onnx(wrapper: _PositionalModel, path: str, outputs: list[str], options: dict[str, Any]) -> None:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    limits = {"length": {"max": wrapper.max_length}}
    free = {i: torch.export.Dim(axis, **limits.get(axis, {})) for i, axis in enumerate(wrapper.axes)}
    # Sizes of 1 would be taken for constants, and one tensor for all inputs for one input.
    shape = (2, 3, 4)[: len(wrapper.axes)]
    example = tuple(torch.ones(shape, dtype=getattr(torch, spec.dtype)) for spec in wrapper.signature)
    # Other kernels lay their result out in another order than the plain operations that become ONNX.
    with sdpa_kernel(SDPBackend.MATH):
        torch.onnx.export(
            wrapper,
            example,
            path,
            dynamo=True,
            dynamic_shapes=((free,) * len(example),),
            input_names=list(wrapper.names),
            output_names=outputs,
            external_data=sum(4 * weight.shape.numel() for weight in wrapper.parameters()) > _LARGEST_FILE,
            **options,
        )


def _register_tf2onnx_operations() -> None:
    """Registers two operations that tf2onnx lacks or gets wrong.

    TensorFlow's exact GELU uses erfc(x) = 1 - erf(x), which tf2onnx lacks. It writes a choice between tensors of
    different shapes as c x + (1 - c) y, which is NaN where the other one is; ONNX's Where broadcasts.
    """
    import tf2onnx.tfonnx  # noqa: F401  (registers its own operations, which must come first)
    from tf2onnx.handler import tf_op

    @tf_op("Erfc")
    class _Erfc:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            (output,), made = node.output, _replaced(ctx, node)
            erf = ctx.make_node("Erf", node.input, **made)
            one = ctx.make_const(f"{node.name}_one", np.ones((), "float32"))
            ctx.make_node("Sub", [one.output[0], erf.output[0]], outputs=[output], name=node.name, **made)

    @tf_op("SelectV2")
    class _Select:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            (output,), made = node.output, _replaced(ctx, node)
            ctx.make_node("Where", node.input, outputs=[output], name=node.name, **made)


def _replaced(ctx, node) -> dict:
    """Removes a node from tf2onnx's graph; -> the shape and type of its output."""
    made = {"shapes": [ctx.get_shape(node.output[0])], "dtypes": [ctx.get_dtype(node.output[0])]}
    ctx.remove_node(node.name)
    return made
