"""`bertzoo convert`: rewrites a checkpoint as a Hugging Face directory with safetensors."""

import tempfile
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from bertzoo.checkpoints.files import find_preset_directory
from bertzoo.checkpoints.int8_storage import store_in_int8
from bertzoo.cli.app import PRESET_HELP, import_bertzoo
from bertzoo.cli.paths import check_preset_output_directory
from bertzoo.cli.task_choice import task_of_architecture


def convert(
    source: Annotated[str, typer.Argument(help=PRESET_HELP)],
    directory: Annotated[Path, typer.Argument(help="Where to write.")],
    dequantize: Annotated[bool, typer.Option("--dequantize", help="Convert int8 weights to floats.")] = False,
    store_int8: Annotated[
        bool, typer.Option("--store-int8", help="Store matrices in 8 bits; they load as floats, with bertzoo alone.")
    ] = False,
) -> None:
    """Rewrite a checkpoint in safetensors, with its tokenizer and the head that config.json names."""
    found = find_preset_directory(source)
    check_preset_output_directory(directory)
    if directory.exists() and directory.samefile(found):
        raise ValueError(f"{directory} is the source itself: name another directory.")
    if store_int8:
        store_in_int8(found, directory)
        print(f"Saved in {directory}: matrices in 8 bits")
        return
    bz = import_bertzoo()
    if dequantize:
        from bertzoo.checkpoints.loading import dequantize_preset

        with tempfile.TemporaryDirectory() as folder:
            dequantize_preset(found, Path(folder) / "floats")
            _convert(bz, str(Path(folder) / "floats"), Path(folder) / "floats", directory)
        return
    _convert(bz, source, found, directory)


def _convert(bz: ModuleType, source: str, found: Path, directory: Path) -> None:
    task, architecture = task_of_architecture(bz, found)
    if task is None:
        _convert_encoder(bz, source, found, directory)
        return
    model = task.from_preset(source, verbose=False)
    if model.load_report.new:
        raise ValueError(
            f"{source} calls itself {architecture} and lacks {', '.join(model.load_report.new)}: "
            "put the right name into architectures in its config.json."
        )
    model.save_to_preset(directory)
    print(f"{model.load_report}\nSaved in {directory}: {architecture}")


def _convert_encoder(bz: ModuleType, source: str, found: Path, directory: Path) -> None:
    tokenizer = bz.Tokenizer.from_directory(found)
    model = bz.Encoder.from_preset(source, verbose=False)
    if model.load_report.new:  # a file without a pooler stays without
        model = bz.Encoder.from_preset(source, pooler=False, verbose=False)
    model.save_to_preset(directory, tokenizer)
    print(f"{model.load_report}\nSaved in {directory}: the encoder alone")
