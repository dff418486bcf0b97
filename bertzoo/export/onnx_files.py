"""Writes ONNX files, and directories with all that an engine or another client needs besides."""

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bertzoo.checkpoints.json_files import encode_json
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import WEIGHT_FILES
from bertzoo.export.checks import check_equal, example_inputs
from bertzoo.export.engine import INT8_MODEL_FILE, MODEL_FILE, OnnxModel

# Beyond this, protobuf cannot hold the weights, and they go into a second file.
LARGEST_FILE = 2**31 - 2**24
OUTPUTS = ("sequence_output", "pooled_output", "masked_lm", "pair")  # of models with several, in the graph's order


def export_onnx(model: Any, target: Path, int8: bool = False) -> None:
    """Writes a model as ONNX; see `bertzoo.export.exporting.export_model`.

    Args:
        model: The encoder or task.
        target: A directory, or a name that ends in `.onnx`.
        int8: Add a file with products in 8 bits.

    Raises:
        ValueError: The target is a preset, or the model in 8 bits is not like the model.
        RuntimeError: The file does not run, or gives other outputs than the model.
    """
    is_file = target.suffix == ".onnx"
    if int8 and is_file:
        raise ValueError(f"int8=True writes two files: name a directory. Received: {target.name!r}.")
    if any((target / name).exists() for name in WEIGHT_FILES):
        raise ValueError(f"Expected a folder for the export alone. Received: {target}, which holds a preset.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export") as folder:
        exact = write_graph(model, Path(folder) / MODEL_FILE)
        if int8:
            _save_quantized(model, exact, Path(folder) / INT8_MODEL_FILE)
        if is_file:
            for file in Path(folder).iterdir():
                file.replace(target if file.name == MODEL_FILE else target.with_name(file.name))
            return
        config = {**getattr(model, "backbone", model).config.to_hf(), "architectures": None}
        files: dict[str, bytes | Callable[[Path], None]] = {"config.json": encode_json(config)}
        if exact.tokenizer is not None:
            files |= exact.tokenizer.file_contents()
        files |= {file.name: partial(shutil.copyfile, file) for file in Path(folder).iterdir()}
        write_preset(target, files)


def build_engine(model: Any, int8: bool = False, num_threads: int | None = None) -> OnnxModel:
    """The engine that runs an encoder or task with its present weights.

    Args:
        model: The encoder or task.
        int8: Compute the dense layers of blocks in 8 bits.
        num_threads: Threads of one run; all cores where None.

    Raises:
        ValueError: A layer has no ONNX form, or the model in 8 bits is not like the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / MODEL_FILE
        exact = write_graph(model, path)
        if int8:
            _save_quantized(model, exact, path)
        return OnnxModel(path, exact.tokenizer, num_threads)


def _save_quantized(model: Any, exact: OnnxModel, path: Path) -> None:
    from bertzoo.export.quantization import quantize  # imports onnx, which is optional

    _save(quantize(model, exact), path)


def write_graph(model: Any, path: Path) -> OnnxModel:
    """Writes the graph of an encoder or task in float32, and tests it.

    Args:
        model: The encoder or task.
        path: The file; weights beyond 2 GB go into a second one beside it.

    Returns:
        The engine that runs it.

    Raises:
        RuntimeError: The file does not run, or gives other outputs than the model.
    """
    try:
        from bertzoo.export.onnx_graph.model import build_onnx
    except ImportError as error:
        raise ImportError(
            f'{error}. Exports need the extra "export"; in the clone of this project: pip install -e ".[export]"'
        ) from error
    _save(build_onnx(model), path)
    try:
        engine = OnnxModel(path, getattr(model, "tokenizer", None))
        expected, outputs, mask = _example_outputs(model, engine)
    except ImportError:
        raise
    except Exception as error:
        raise RuntimeError(f"the model exported as onnx does not run, so nothing was written: {error}") from error
    check_equal(expected, outputs[: len(expected)], mask, 1e-3)
    return engine


def _example_outputs(model: Any, engine: OnnxModel) -> tuple[list, list, Any]:
    """The outputs of a model and of its export for the same inputs, and which tokens count."""
    if hasattr(model, "example_outputs"):  # of a model with inputs of its own
        return model.example_outputs(engine)
    inputs, mask = example_inputs(model)
    expected = model.predict_on_batch(inputs)
    if isinstance(expected, dict):
        expected = [expected[name] for name in OUTPUTS if name in expected]
    expected = expected if isinstance(expected, list) else [expected]
    return expected, list(engine.run(inputs).values()), mask


def _save(proto: Any, path: Path) -> None:
    import onnx

    is_large = proto.ByteSize() > LARGEST_FILE
    onnx.save_model(proto, path, save_as_external_data=is_large, location=f"{path.name}.data")
