"""What a report writes: the HTML page, Markdown, LaTeX, the terminal, files for machines."""
