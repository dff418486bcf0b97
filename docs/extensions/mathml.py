"""Formulas as MathML, which browsers draw themselves: no script, no font, no network."""

from html import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def _visit(translator: HTML5Translator, node: nodes.Element, display: str) -> None:
    latex = node.astext().strip()
    formula = convert(latex, display=display).replace("<math ", f'<math alttext="{escape(latex)}" ', 1)
    translator.body.append(formula if display == "inline" else f'<div class="math" tabindex="0">{formula}</div>')
    raise nodes.SkipNode


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """A formula within a line."""
    _visit(translator, node, "inline")


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """A formula by itself, which scrolls where it is wider than the page."""
    _visit(translator, node, "block")


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the renderer; `html_math_renderer = "mathml"` chooses it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True}
