"""`bertzoo describe`: how many parameters a checkpoint has, by part."""

from typing import Annotated

import typer

from bertzoo.cli.app import start


def describe(
    name: Annotated[str, typer.Argument(help="A bundled name, a directory, or a name that `bertzoo list` shows.")],
) -> None:
    """Show a checkpoint's parameters by part, without downloading it."""
    start()
    import bertzoo as bz

    print(bz.describe(name))
