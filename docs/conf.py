"""Sphinx settings of the site; ``make docs`` builds it without network."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "ParVIBench"
author = "The ParVIBench authors"
copyright = author
version = release = installed_version("parvibench")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "pages", "notebooks"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
# Cross-references into other projects' documentation would need the network.
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "furo"
html_title = f"ParVIBench {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
