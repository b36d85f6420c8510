"""What a maintainer sees who accepts forged archives: messages, seconds, memory, and whether anything is shown as computed here.

    python tests/studies/forgeries.py FOLDER [--half known|aside] [--elsewhere] [--flips 300] [--kills 40]

FOLDER gets a small board and an honest submission. Every kind of ``tests/board/forged.py`` goes through the command
``parvibench accept`` in a process of its own; ``--half`` takes every second kind. ``--flips`` reads
archives with one changed bit, ``--kills`` kills the command at random moments and repeats it.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "board"))
import pandas as pd
from conftest import PLUGIN
from forged import KINDS, flipped, forged, unpacked
from kills import Command

import parvibench as pb
from parvibench.api import stores as api
from parvibench.api.report import write
from parvibench.board.packing import read
from parvibench.core.errors import InputError

#: Most seconds and bytes of a command that reads a forged archive.
MOST_S, MOST_BYTES = 60.0, 1_000_000_000


def prepare() -> None:
    """A board of the suite `quick`, and a submission with a built-in method and a plug-in, in the working directory."""
    Path("mine.py").write_text(PLUGIN)
    options = {"tasks": ["banana"], "workers": 0, "tracking": False}
    write(pb.run("quick", algorithms=["ula"], out="own", **options), Path("base/quick"), compact=True)
    Path("base/quick/index.html").unlink()
    api.write_board("base/quick")
    pb.run(
        "quick", algorithms=["mala", "mine.py:Mine"], settings={"mine": {"step_size": 0.002}}, out="theirs", **options
    )
    api.submit("theirs", "theirs.zip", name="Theirs", warn=print)


def fresh() -> None:
    """The board as it was, and no reruns."""
    for name in ("reports", "reruns"):
        shutil.rmtree(name, ignore_errors=True)
    shutil.copytree("base", "reports")


def accept(archive: str, limit: float = 600.0) -> tuple[int, str, float, float]:
    """Exit code, messages, processor seconds and largest memory in bytes of the command."""
    program = str(Path(sys.executable).with_name("parvibench"))
    words = [program, "accept", archive, "--out", "reruns", "--workers", "0"]
    start, before = time.monotonic(), os.times()
    with Path("said.txt").open("wb") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said)
        memory = 0
        while process.poll() is None:
            if time.monotonic() > start + limit:
                process.kill()
            with contextlib.suppress(OSError, IndexError):
                peak = Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
                memory = max(memory, int(peak) * 1024)
            time.sleep(0.02)
    now = os.times()  # of a machine that is busy with other things, too
    spent = now.children_user + now.children_system - before.children_user - before.children_system
    return process.returncode, Path("said.txt").read_text(errors="replace"), spent, memory


def files() -> set[Path]:
    """All files but reruns, messages and archives."""
    return {p for p in Path().rglob("*") if p.is_file() and p.parts[0] not in ("reruns", "said.txt", "forged.zip")}


def problems(kind: str, elsewhere: bool, truth: float) -> list[str]:
    """What is wrong with how a forged archive is handled."""
    fresh()
    before = files()
    Path("forged.zip").write_bytes(forged(kind, unpacked(Path("theirs.zip").read_bytes()), other_hardware=elsewhere))
    code, text, seconds, memory = accept("forged.zip")
    found = [] if code == 0 or (code in (1, 2) and "parvibench: " in text) else [f"exit code {code}"]
    found += ["traceback"] if "Traceback" in text else []
    found += [f"{seconds:.0f} s"] * (seconds > MOST_S) + [f"{memory / 1e6:.0f} MB"] * (memory > MOST_BYTES)
    new = files() - before
    found += [f"file {p}" for p in new if code or p.parts[:3] != ("reports", "quick", "submissions")]
    if code == 0:
        page = Path("reports/quick/index.html").read_text()
        rows = re.findall(r"<tr.*?</tr>", page, flags=re.DOTALL)
        verified = {m[1] for row in rows if ">verified<" in row and (m := re.search(r">([^<>]+ \(Theirs\))<", row))}
        median = pd.read_parquet("reports/quick/results.parquet").drop_duplicates("label").set_index("label")["median"]
        found += [f"{label} is verified" for label in verified if abs(median[label] / truth - 1) > 1e-6]
    last = text.strip().splitlines()[-1][:110] if text.strip() else ""
    print(
        f"{'FAIL' if found else 'ok':4} {code} {seconds:4.1f} s {memory / 1e6:4.0f} MB  {kind}: {last!r} {found or ''}",
        flush=True,
    )
    return found


def flips(count: int) -> int:
    """Archives with a changed bit that end in anything but one kind of error or the same content."""
    honest, rng, wrong, refused = Path("theirs.zip").read_bytes(), random.Random(11), 0, 0
    before = read(Path("theirs.zip")).files
    for _ in range(count):
        Path("forged.zip").write_bytes(flipped(honest, rng))
        try:
            wrong += read(Path("forged.zip")).files != before
        except InputError:
            refused += 1
        except Exception as error:
            print(repr(error))
            wrong += 1
    print(f"{count} flipped bits: {refused} refused, {count - refused - wrong} without effect, {wrong} wrong")
    return wrong


def kills(count: int) -> int:
    """Kills, half of them at a random file, after which repeats do not give the board of a command that was not killed."""
    fresh()
    command = Command(["accept", "theirs.zip", "--out", "reruns", "--workers", "0"])
    command.undisturbed()
    right, wrong, rng = pd.read_parquet("reports/quick/results.parquet").drop_duplicates("label"), 0, random.Random(5)
    while (before := command.kills) < count:
        if rng.random() < 0.2:
            fresh()
        else:  # the reruns are there
            shutil.rmtree("reports")
            shutil.copytree("base", "reports")
        command.survive(rng, count)
        now = pd.read_parquet("reports/quick/results.parquet").drop_duplicates("label")
        same = list(now["label"]) == list(right["label"]) and now["median"].equals(right["median"])
        good = same and not list(Path("reports").rglob(".new-*"))
        print(f"{command.kills - before} kills: {'the same' if good else 'another'} board", flush=True)
        wrong += not good
    print(f"{command.kills} kills at {command.files} files and in {command.longest:.1f} s: {wrong} wrong")
    return wrong


def main() -> int:
    """The number of problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", choices=("known", "aside"), help="only the kinds at even places, or at odd ones")
    parser.add_argument("--elsewhere", action="store_true", help="say that the archives were made on other hardware")
    parser.add_argument("--flips", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(given.folder)
    if not Path("theirs.zip").is_file():
        prepare()
    if given.flips or given.kills:
        return flips(given.flips) + kills(given.kills)
    theirs = read(Path("theirs.zip"))
    (truth,) = (pd.Series(r.values["sliced_w2"]).median() for r in theirs.records.values() if r.label == "mala")
    step = {"known": KINDS[::2], "aside": KINDS[1::2], None: KINDS}[given.half]
    return sum(bool(problems(kind, given.elsewhere, float(truth))) for kind in ("", *step))


if __name__ == "__main__":
    raise SystemExit(min(main(), 1))
