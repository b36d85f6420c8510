"""Execute the tutorials' notebooks, each in an empty folder.

Usage: notebooks.py FOLDER
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

# Cells in bash find the programs of this environment.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
notebooks = sorted(Path(sys.argv[1]).glob("*.ipynb"))
if not notebooks:
    sys.exit("no notebooks")
for file in notebooks:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            nbformat.read(file, as_version=4),
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        ).execute()
    print(f"{file.name}: executed in {time.monotonic() - started:.0f} s")
