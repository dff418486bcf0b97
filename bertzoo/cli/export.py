"""`bertzoo export`: models as files for ONNX Runtime and `bertzoo serve`."""

from pathlib import Path
from typing import Annotated

import typer

from bertzoo.checkpoints.files import find_preset_directory
from bertzoo.cli.app import PRESET_HELP, import_bertzoo
from bertzoo.cli.paths import check_preset_output_directory
from bertzoo.cli.task_choice import task_for_inference


def export(
    preset: Annotated[str, typer.Argument(help=PRESET_HELP)],
    directory: Annotated[Path, typer.Argument(help="Where to write.")],
    int8: Annotated[bool, typer.Option("--int8", help="Add a file with products in 8 bits, if answers stay.")] = False,
) -> None:
    """Write a model as ONNX, with its tokenizer, for `bertzoo serve` and other clients of ONNX."""
    found = find_preset_directory(preset)
    check_preset_output_directory(directory)
    model = task_for_inference(import_bertzoo(), found).from_preset(preset, verbose=False)
    missing = [] if type(model).__name__ == "SentenceEncoder" else model.load_report.new
    if missing:
        raise ValueError(f"{preset} is not a trained {type(model).__name__}: it lacks {', '.join(missing)}.")
    model.export(directory, format="onnx", int8=int8)
    print(f"{type(model).__name__} in {directory}")
