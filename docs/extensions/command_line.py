"""The directive `commands`: a section with the help of each command of `bertzoo`."""

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from typer.main import get_command
from typer.testing import CliRunner

from bertzoo.cli.main import app as cli


class Commands(Directive):
    def run(self) -> list[nodes.Node]:
        return [section(name) for name in get_command(cli).commands]


def section(name: str) -> nodes.section:
    text = CliRunner().invoke(cli, [name, "--help"], prog_name="bertzoo").stdout
    node = nodes.section(ids=[f"bertzoo-{name}"])
    node += nodes.title(text=f"bertzoo {name}")
    node += nodes.literal_block(text, text.strip(), language="text")
    return node


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
