"""The site of bertzoo: `python -m sphinx docs site`, with the extra `docs`."""

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import inspect

import bertzoo

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "bertzoo"
author = "The bertzoo maintainers"
copyright = "The bertzoo maintainers"
release = bertzoo.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "repository_files",
    "llms_txt",
    "command_line",
    "explorers",
    "mathml",
]
exclude_patterns = ["extensions"]

html_theme = "furo"
html_title = "bertzoo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # the stored outputs, which tests compare on every backend

default_role = "py:obj"  # `name` in a docstring is a link where the reference has it, and code elsewhere
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
copybutton_prompt_text = ">>> |... "
copybutton_prompt_is_regexp = False


def skip_inherited(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leaves out what a class has from Keras or a backend."""
    function = getattr(member, "fget", member)
    module = getattr(getattr(function, "__func__", function), "__module__", None) or "bertzoo"
    return None if module.startswith("bertzoo") else True


def show_constructor(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """The arguments of a class whose base takes any in `__new__`, as Keras's layers do."""
    if what != "class" or signature != "(*args, **kwargs)":
        return None
    arguments = inspect.signature(value.__init__, bound_method=True)
    return inspect.stringify_signature(arguments, show_annotation=True, unqualified_typehints=True), returns


def escape_bars(app: Sphinx, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Absolute values such as |a - b| are no substitutions of reStructuredText."""
    lines[:] = [re.sub(r"`[^`]*`|\|", lambda match: r"\|" if match[0] == "|" else match[0], line) for line in lines]


def setup(app: Sphinx) -> None:
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-signature", show_constructor)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)  # after napoleon
