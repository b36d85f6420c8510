"""Tutorials as notebooks, made from the same Markdown; they lie in the site under ``notebooks/``."""

import re
from pathlib import Path

import jupytext
import nbformat
from sphinx.application import Sphinx

#: Without it the language of most blocks would be the notebook's, and that of the others a magic.
KERNEL = "---\njupyter:\n  kernelspec:\n    display_name: Python 3\n    language: python\n    name: python3\n---\n"


def notebook(page: Path) -> nbformat.NotebookNode:
    """The page as a notebook: ``python`` blocks and ``bash`` blocks (as ``%%bash``) are its cells."""
    text = re.sub(r"^\{download\}.*\n", "", page.read_text("utf-8"), flags=re.M)
    return jupytext.reads(KERNEL + text, fmt="md")


def write(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "notebooks"
    folder.mkdir(exist_ok=True)
    for page in sorted((Path(app.srcdir) / "tutorials").glob("*.md")):
        if re.search(r"^```(python|bash)$", page.read_text("utf-8"), flags=re.M):  # others have nothing to run
            jupytext.write(notebook(page), folder / f"{page.stem}.ipynb")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
