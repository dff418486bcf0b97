"""The command line as a click command, which the reference shows."""

import typer

from bertzoo.cli.main import app

command = typer.main.get_command(app)
