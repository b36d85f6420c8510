"""Run the commands and Python examples of pages as typed, page by page in an empty folder, with the programs of one folder.

Usage: commands.py BIN PAGE [PAGE ...]

Blocks ``bash`` and ``python`` and, of ``sh`` blocks, the lines that begin with ``parvibench`` run in order, as one program.
Exit code 1 where one fails.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def program(page: Path) -> str:
    """A Python program of all blocks of a page."""
    parts = ["import subprocess as _subprocess"]
    for _, language, code in re.findall(r"^(`{3,})([^\n]*)\n(.*?)^\1$", page.read_text("utf-8"), flags=re.S | re.M):
        kind, joined = language.strip(), re.sub(r"\\\n\s*", " ", code)
        if kind == "sh":
            joined = "".join(f"{line}\n" for line in joined.splitlines() if line.startswith("parvibench "))
        if kind == "python":
            parts.append(code)
        elif kind in ("bash", "sh") and joined:
            parts.append(f"_subprocess.run(['bash', '-euc', {joined!r}], check=True)")
    return "\n".join(parts)


if __name__ == "__main__":
    programs = Path(sys.argv[1]).absolute()
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    for name in sys.argv[2:]:
        began, code = time.monotonic(), program(Path(name))
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "page.py"
            script.write_text(code, "utf-8")
            words = [str(programs / "python"), str(script)]
            done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name}: exit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
            sys.exit(1)
        print(f"{name}: {time.monotonic() - began:.0f} s")
