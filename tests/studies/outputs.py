"""Every output of the command line with targets that are new, empty, there already, linked, or cannot be written.

``python tests/studies/outputs.py FOLDER [--only 'tune --write']``: a command writes its output and exits 0, or says why not in one line, with
exit code 1 or 2, within seconds, before anything is run.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.extend([str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "cli")])
from output_options import FILES, FOLDERS
from test_outputs import SUITE, TARGET

import parvibench as pb
from parvibench.api import stores
from parvibench.cli import main

#: Commands that may say why not after the check of their output: what they are given here is there already, or lacks something.
ELSE = {
    "new --to", "reference build --folder", "reference floors --folder", "accept --out", "check --baseline",
}  # fmt: skip
#: Most seconds of a refusal.
MOST_S = 10.0


def prepare() -> None:
    """What the commands read, in the working directory."""
    Path("suite.yaml").write_text(SUITE)
    Path("target.py").write_text(TARGET)
    np.save("draws.npy", np.random.default_rng(0).normal(size=(500, 2)))
    options = {"replicates": 2, "particles": 5, "budget": {"iterations": 5}, "workers": 0, "tracking": False}
    pb.run(tasks=["multimodal"], algorithms=["ula"], out="store", **options)  # type: ignore[arg-type]
    pb.report("store", "reports/custom", compact=True)
    Path("reports/custom/index.html").unlink()
    stores.submit("store", "mine.zip", name="mine", warn=lambda line: None)


def targets(place: Path, folder: bool) -> Iterator[tuple[str, Path, bool]]:
    """Kind, path and whether it can be written, of outputs in a folder of their own."""
    place.mkdir()
    name = "out" if folder else "out.png"
    (place / "file").touch()
    (place / "empty.png").touch()
    (place / "folder").mkdir()
    (place / "there").mkdir() if folder else (place / "there").touch()
    os.mkfifo(place / "pipe")
    for link, to in (("link", "there"), ("dangling", "new-target.png"), ("loop", "loop.png")):
        (place / f"{link}.png").symlink_to(to)
    yield "new", place / name, True
    yield "again", place / name, True
    yield "empty", place / ("folder" if folder else "empty.png"), True
    yield "link", place / "link.png", True
    yield "dangling link", place / "dangling.png", True
    yield "the other kind", place / ("file" if folder else "folder"), False
    yield "below a file", place / "file" / name, False
    yield "missing folder", place / "missing" / name, folder or "figure" in place.name
    yield "link to itself", place / "loop.png", False
    yield "pipe", place / "pipe", False
    yield "/proc", Path("/proc") / name, False
    yield "long name", place / ("n" * 300), False
    read_only = place / "read-only"
    read_only.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(read_only)], check=False).returncode == 0:
        yield "read-only disk", read_only / name, False
        subprocess.run(["umount", "-l", str(read_only)], check=True)


def command(words: list[str]) -> tuple[int, str]:
    """Exit code and errors of a command line, in a fork of this process: what it imports is there; 99 for a traceback."""
    process = os.fork()
    if process == 0:
        errors = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(errors, 2)
        sys.argv, code = ["parvibench", *words], 99
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code, Path("said.txt").read_text().strip()


def tried(option: str, words: str, path: Path, can: bool) -> str:
    """What is wrong with a command that writes to this path, or empty."""
    start = time.monotonic()
    link = os.path.islink(path)  # noqa: PTH114 - a name may be too long
    code, said = command([word.replace("{}", str(path)) for word in words.split()])
    seconds = time.monotonic() - start
    if code == 99:
        return f"traceback: {said[-300:]}"
    if not can:
        wrong = [] if code in (1, 2) and said.count("\n") == 0 else [f"exit {code}: {said[-300:]}"]
        return "; ".join([*wrong, *([f"{seconds:.0f} s"] if seconds > MOST_S else [])])
    if code and not (option in ELSE and code == 2 and said.count("\n") == 0):
        return f"exit {code}: {said[-300:]}"
    if link and not path.is_symlink():
        return "the link was replaced"
    return "" if code or option in ELSE or path.exists() else "nothing written"


def study() -> int:
    """The number of problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", help="an option, as 'tune --write' (repeatable)")
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    os.chdir(given.folder)
    prepare()
    problems = trials = 0
    for number, (option, words) in enumerate({**FOLDERS, **FILES}.items()):
        if given.only and option not in given.only:
            continue
        place = Path(f"{number}-{option.replace(' ', '')}").absolute()
        for kind, path, can in targets(place, option in FOLDERS):
            wrong = tried(option, words, path, can)
            trials, problems = trials + 1, problems + bool(wrong)
            print(f"{'FAIL' if wrong else 'ok':4} {option}: {kind} {wrong}", flush=True)
    print(f"{trials} trials, {problems} problems")
    return problems


if __name__ == "__main__":
    raise SystemExit(bool(study()))
