"""Outputs of a report: the HTML page, Markdown, LaTeX, the terminal, files for machines."""
