"""The command line: `bertzoo --help`."""

from typing import Annotated

import typer

from bertzoo import __version__
from bertzoo.cli.app import escape_unencodable_output, with_backend_and_debug_options, with_debug_option
from bertzoo.cli.compare import compare
from bertzoo.cli.convert import convert
from bertzoo.cli.course import course
from bertzoo.cli.embed import embed
from bertzoo.cli.export import export
from bertzoo.cli.fit import fit
from bertzoo.cli.grid import grid
from bertzoo.cli.predict import predict
from bertzoo.cli.presets import list_presets
from bertzoo.cli.pretraining import prepare, pretrain
from bertzoo.cli.quickstart import quickstart
from bertzoo.cli.search import search
from bertzoo.cli.serve import serve

app = typer.Typer(
    name="bertzoo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(short_help="Train a first model in about a minute.")(with_backend_and_debug_options(quickstart))
app.command("list", short_help="List presets and checkpoints.")(with_backend_and_debug_options(list_presets))
app.command(short_help="Compare the costs of two or more encoders.")(with_backend_and_debug_options(compare))
app.command(short_help="Fine-tune a model on a file.")(with_backend_and_debug_options(fit))
app.command(short_help="Search hyperparameters.")(with_backend_and_debug_options(grid))
app.command(short_help="Apply a fine-tuned model.")(with_backend_and_debug_options(predict))
app.command(short_help="Turn texts into vectors.")(with_backend_and_debug_options(embed))
app.command(short_help="Find passages in the files of a folder.")(with_debug_option(search))
app.command(short_help="Write a model as ONNX.")(with_backend_and_debug_options(export))
app.command(short_help="Serve models over HTTP.")(with_debug_option(serve))
app.command(short_help="Rewrite a checkpoint in safetensors.")(with_backend_and_debug_options(convert))
app.command(short_help="List, copy or grade the notebooks.")(with_debug_option(course))
app.command(short_help="Tokenize a corpus for pretrain.")(with_debug_option(prepare))
app.command(short_help="Pre-train a model.")(with_backend_and_debug_options(pretrain))


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"bertzoo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Fine-tune, use, convert and pre-train encoders of the BERT family. Begin with `bertzoo quickstart`."""


def main() -> None:
    """The entry point of the `bertzoo` command."""
    escape_unencodable_output()
    app(prog_name="bertzoo")
