"""Formulas as MathML, converted when the site is built: browsers draw them without a script, a font or the network."""

from html import escape

from docutils.nodes import SkipNode, math, math_block
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def inline(translator: HTML5Translator, node: math) -> None:
    translator.body.append(_mathml(node.astext(), "inline"))
    raise SkipNode


def block(translator: HTML5Translator, node: math_block) -> None:
    translator.body.append(f'<div class="formula" tabindex="0">{_mathml(node.astext(), "block")}</div>')
    raise SkipNode


def _mathml(latex: str, display: str) -> str:
    """The formula with its source as its text for readers of the page's source and for search."""
    return convert(latex, display=display).replace("<math ", f'<math alttext="{escape(latex)}" ', 1)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
