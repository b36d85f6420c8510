"""What a GPU gives: ``python tests/benchmarks/card.py``, or ``make gpu``. Under 8 minutes, without network; installs nothing.

Writes ``reports/gpu``: every algorithm on the card and on the CPU, times of steps, whole runs, NUTS with few
and many chains and BlackJAX's. Results are written one by one: started again, the program goes on where it stopped and
tries again what failed. ``--device cpu`` runs the same code in the card's place; ``--fast`` takes smaller sizes.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch

from parvibench.checks.questions import devices
from parvibench.core import registry
from parvibench.core.errors import printable
from parvibench.core.result import CellRecord, Status
from parvibench.harness.run.clock import Clock, peak_memory, reset_peak_memory
from parvibench.harness.run.compiling import RecordedStep, require_compiler
from parvibench.harness.session import resolve_device
from parvibench.harness.store.environment import provenance
from parvibench.harness.workers.executors import Job, Notify
from parvibench.harness.workers.processes import Workers

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "gpu"
COMMAND = "python tests/benchmarks/card.py"
#: Wall-clock seconds: of the whole, of a group of measurements in one process, of one on its own.
WHOLE_S, GROUP_S, SINGLE_S = 480.0, 150.0, 90.0
GROUP = {"nuts": 1, "compiled steps": 1}
_GROUP = 12
#: Methods of the suite ``toy`` in whole runs, through the harness and its worker.
TOY = ("svgd", "sgld", "mala", "nuts", "sifg", "ksivi", "smc", "mclmc")
COMPILED = ("svgd", "sgld", "mala", "ksivi")
NUTS_TARGETS = ("blr-breast-cancer", "funnel-10d")

Row = dict[str, Any]


class Size(NamedTuple):
    """How much is measured."""

    particles: tuple[int, int]  #: of toy runs, and chains of NUTS
    iterations: tuple[int, int]  #: of toy runs with few and with many particles
    steps: int  #: timed of every algorithm
    sifg: int  #: iterations of SIFG's row, of two replicates


# SVGD of 10,000 particles takes half a second a step and replicate on one thread of a CPU.
FULL = Size((100, 10_000), (200, 20), 50, 400)
FAST = Size((100, 1000), (20, 20), 10, 20)


@dataclass(frozen=True)
class Item:
    """One measurement, in a process of its own or with others."""

    part: str
    name: str
    run: Callable[[], Row]


@dataclass(frozen=True)
class Together(Job[list[Row]]):
    """Measurements one after another in one process: what fails is reported and the rest goes on."""

    items: tuple[Item, ...]

    def run(self, notify: Notify) -> list[Row]:
        """A row each."""
        return [measured(item) for item in self.items]


def measured(item: Item) -> Row:
    """What a measurement gives, or why it has failed."""
    start = time.perf_counter()
    row: Row = {"part": item.part, "name": item.name, "status": "ok"}
    try:
        row |= item.run()
    except ModuleNotFoundError as error:
        row |= {"status": "skipped", "reason": f"{error.name} is not installed"}
    except Exception as error:
        row |= {"status": "failed", "reason": printable(f"{type(error).__name__}: {error}".split("\n")[0][:300])}
    return row | {"took": round(time.perf_counter() - start, 2)}


def agrees(name: str, device: str) -> Row:
    """An algorithm on the card, compared with itself on the CPU."""
    found = devices.compare(name, device)
    row = {"difference": found.difference, "p_value": found.p_value}
    fine = found.ok(len(devices.comparable()))
    return row if fine else row | {"status": "failed", "reason": "the card and the CPU disagree"}


def step_times(name: str, device: str, steps: int, particles: int, replicates: int, *, compiled: bool = False) -> Row:
    """Steady milliseconds of a step of all replicates in the plane and the peak of memory, and of one thread of the CPU."""
    from stepping import Stepper

    method = registry.load_algorithm(name)
    settings = dict(method.example.quick)
    ids = (0,) if method.max_chunk == 1 else tuple(range(replicates))
    if compiled:
        require_compiler(device)
    reset_peak_memory(torch.device(device))
    stepper = Stepper("gmm5-2d", name, settings, particles, ids, device=device, compiled=compiled)
    row = {"replicates": len(ids), "particles": particles, **clocked(lambda: stepper.run(1), device, steps)}
    if not compiled:
        on_cpu = Stepper("gmm5-2d", name, settings, particles, ids)
        row["CPU ms"] = clocked(lambda: on_cpu.run(1), "cpu", steps)["ms"]
        row["times faster"] = row["CPU ms"] / row["ms"]
    return row


def clocked(step: Callable[[], object], device: str, steps: int) -> Row:
    """Milliseconds of a step after warm-up, by events on a card: median of five turns; and the peak of memory."""
    for _ in range(3):
        step()
    turns = []
    for _ in range(5):
        clock = Clock(torch.device(device))
        clock.start()
        for _ in range(max(1, steps // 5)):
            step()
        clock.stop()
        turns.append(1000 * clock.seconds / max(1, steps // 5))
    return {"ms": statistics.median(turns), "peak MiB": peak_memory(torch.device(device))}


def nuts(target: str, chains: int, device: str, steps: int, *, compiled: bool) -> Row:
    """Microseconds of a leapfrog step of a chain of ours, after the warm-up."""
    from stepping import Stepper

    if compiled:
        require_compiler(device)
    stepper = Stepper(target, "nuts", {"warmup_steps": 16}, chains, device=device, horizon=200)
    stepper.run(18)
    if compiled:
        stepper.advance = RecordedStep(stepper.advance)
    before = stepper.problem.meter.charged
    row = clocked(lambda: stepper.run(1), device, steps)
    taken = 3 + 5 * max(1, steps // 5)
    leapfrogs = (stepper.problem.meter.charged - before) / taken  # of all chains, a step
    return row | {"us": 1000 * row["ms"] / leapfrogs}


def blackjax(target: str, chains: int, device: str, steps: int) -> Row:
    """The same of BlackJAX at the step length and masses of our warm-up, on JAX's card."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most of the card's memory at once
    import jax
    import peers
    from stepping import Stepper

    if device == "cuda" and jax.default_backend() != "gpu":
        return {"status": "skipped", "reason": "JAX sees no GPU"}
    stepper = Stepper(target, "nuts", {"warmup_steps": 16}, chains, horizon=200)
    stepper.run(18)
    run = peers.nuts(stepper)
    run(steps)  # compiles
    turns = []
    for _ in range(3):
        start = time.perf_counter()
        work = run(steps)
        turns.append((time.perf_counter() - start) / work)
    return {"us": 1e6 * statistics.median(turns)}


def items(device: str, size: Size) -> list[Item]:
    """All measurements but whole runs."""
    names = devices.comparable()
    found = [Item("agreement", name, partial(agrees, name, device)) for name in names]
    few, many = size.particles
    found += [Item("steps", name, partial(step_times, name, device, size.steps, few, 10)) for name in names]
    found += [Item("steps of many particles", name, partial(step_times, name, device, 5, many, 1)) for name in TOY]
    for name in COMPILED:
        run = partial(step_times, name, device, size.steps, few, 10, compiled=True)
        found.append(Item("compiled steps", name, run))
    for target in NUTS_TARGETS:
        for chains in size.particles:
            for compiled in (False, True):
                name = f"{target}, {chains} chains, {'compiled' if compiled else 'as it is'}"
                found.append(Item("nuts", name, partial(nuts, target, chains, device, size.steps, compiled=compiled)))
            others = partial(blackjax, target, chains, device, size.steps)
            found.append(Item("nuts", f"{target}, {chains} chains, BlackJAX", others))
    return found


def whole_runs(device: str, size: Size, store: Path) -> dict[str, Callable[[], list[CellRecord]]]:
    """Runs of the harness, each cell in the card's worker: SIFG's row of Table 1, and toy targets."""
    import parvibench as pb

    common: dict[str, Any] = {
        "device": device, "out": store, "tracking": False, "timeout": SINGLE_S, "fresh": True, "warn": lambda _: None,
    }  # fmt: skip

    def run(**options: Any) -> list[CellRecord]:
        return list(pb.run(**common, **options).cells)

    shorter = {"budget": {"iterations": size.sifg}, "replicates": 2}
    found = {"SIFG's Table 1": partial(run, suite="sifg-table-1", rows=("bnn-boston-sifg/ada-sifg",), **shorter)}
    for n, iterations in zip(size.particles, size.iterations, strict=True):
        found[f"toy, {n} particles"] = partial(
            run, suite="toy", tasks=["gmm5-2d"], algorithms=list(TOY), particles=n, samples=100, replicates=2,
            budget={"iterations": iterations},
        )  # fmt: skip
    return found


def row_of(part: str, cell: CellRecord) -> Row:
    """A cell of a whole run: seconds of its steps, and of its metrics apart."""
    row: Row = {"part": part, "name": f"{cell.spec.task}/{cell.label}", "status": "ok"}
    if cell.status is not Status.OK:
        kind = "skipped" if cell.status in (Status.SKIPPED, Status.UNSUPPORTED) else "failed"
        return row | {"status": kind, "reason": printable(f"{cell.status}: {cell.reason}".split("\n")[0][:300])}
    peaks = [v for v in cell.values.get("peak_memory", []) if v is not None]
    row |= {"seconds": cell.seconds, "iterations": cell.iterations, "metrics s": cell.overheads.get("metrics")}
    row |= {"warm-up s": cell.overheads.get("warmup"), "peak MiB": max(peaks, default=None)}
    for metric in ("sliced_w2", "rmse", "nll"):
        values = [v for v in cell.values.get(metric, []) if v is not None]
        if values:
            row[metric] = statistics.median(values)
    return row


class Report:
    """The rows measured so far, on disk after every group; those of another card, version or size do not count."""

    def __init__(self, folder: Path, facts: Row, *, fresh: bool) -> None:
        self.folder, self.facts = folder, facts
        self.rows: dict[str, Row] = {}
        held = folder / "results.json"
        if held.exists() and not fresh:
            before = json.loads(held.read_text())
            if before["facts"]["stamp"] == facts["stamp"]:
                self.rows = {key(row): row for row in before["rows"]}

    def done(self, name: str) -> bool:
        """Whether a measurement need not be made again."""
        return self.rows.get(name, {}).get("status") in ("ok", "skipped")

    def add(self, rows: list[Row]) -> None:
        """Store rows, and write both files."""
        for row in rows:
            self.rows[key(row)] = row
            if row["status"] != "ok":
                print(f"{row['status']}: {key(row)}: {row['reason']}", file=sys.stderr, flush=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        found = {"facts": self.facts, "rows": list(self.rows.values())}
        (self.folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
        (self.folder / "README.md").write_text(page(found))


def key(row: Row) -> str:
    """The name of a measurement in its part."""
    return f"{row['part']}: {row['name']}"


def page(found: Row) -> str:
    """The Markdown page."""
    facts, rows = found["facts"], found["rows"]
    bad = [row for row in rows if row["status"] != "ok"]
    lines = [f"- {key(row)}: {row['status']}, {row['reason']}" for row in bad] or ["None."]
    parts = list(dict.fromkeys(row["part"] for row in rows))
    tables = "\n\n".join(f"## {part}\n\n{table([r for r in rows if r['part'] == part])}" for part in parts)
    return f"""# Measured on {facts["hardware"]}

Made by `{facts["command"]}` on {facts["day"]}. {facts["card"]}; PyTorch {facts["torch"]}, Python {facts["python"]}{facts["jax"]}.

{headline(rows)}

- *agreement*: a first step with the CPU's random numbers, largest relative difference (at most {devices.TOLERANCE:g});
  samples by law, p-value of equal means and spreads (Bonferroni over the coordinates).
- *steps*: 10 replicates of 100 particles on gmm5-2d, milliseconds by events on the card after three steps, the median of
  five turns, and the same of one thread of the CPU; peak memory is PyTorch's on a card, the process's otherwise.
  *steps of many particles*: one replicate. *compiled steps*: as `--compile` makes them; ten replicates again.
- *nuts*: microseconds of a leapfrog step of one chain, all chains together. *toy* and *SIFG's Table 1*: whole runs,
  metrics and warm-up apart from steady seconds.

## Failed or skipped

{chr(10).join(lines)}

{tables}
"""


def headline(rows: list[Row]) -> str:
    """What the tables say of agreement, and of when a card is worth its while."""
    agreed = [row for row in rows if row["part"] == "agreement"]
    said = [f"{sum(r['status'] == 'ok' for r in agreed)} of {len(agreed)} algorithms agree with themselves on the CPU."]
    for part in ("steps", "steps of many particles"):
        gains = {r["name"]: r["times faster"] for r in rows if r["part"] == part and "times faster" in r}
        if gains:
            size = next(f"{r['particles']:,} particles" for r in rows if r["part"] == part and "particles" in r)
            most, middle = max(gains, key=gains.__getitem__), statistics.median(gains.values())
            said.append(
                f"With {size}, the card takes one step {middle:.3g} times as fast as one thread of the CPU in the median of "
                f"{len(gains)} algorithms; with {most}, which gains most, {gains[most]:.3g} times."
            )
    return "\n".join(said)


def table(rows: list[Row]) -> str:
    """A Markdown table of the rows that have numbers."""
    columns = list(dict.fromkeys(c for r in rows for c in r if c not in ("part", "name", "status", "reason", "took")))
    head = f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}\n"
    shown = [r for r in rows if r["status"] == "ok" or any(c in r for c in columns)]
    return head + "\n".join(f"| {r['name']} | {' | '.join(cell(r.get(c)) for c in columns)} |" for r in shown)


def cell(value: Any) -> str:
    """A number with three digits."""
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def environment(device: str, size: Size) -> Row:
    """Card, driver and versions; the stamp tells results that may stand together."""
    command = f"{COMMAND} --device {device}{' --fast' if size is FAST else ''}"
    facts = provenance(command, device)
    peers = [f"{name} {installed}" for name in ("JAX", "BlackJAX") if (installed := version_of(name.lower()))]
    card = f"{facts['hardware']}, CUDA {torch.version.cuda}, driver {driver()}" if device == "cuda" else "no card"
    row = {
        "command": command, "day": date.today().isoformat(), "hardware": facts["hardware"], "card": card,
        "torch": torch.__version__, "python": platform.python_version(), "jax": "".join(f", {peer}" for peer in peers),
        "packages": facts["packages"], "git": facts["git"],
    }  # fmt: skip
    return row | {"stamp": [row[k] for k in ("command", "card", "torch", "packages", "git")]}


def version_of(package: str) -> str:
    """Of an installed package, or empty."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def driver() -> str:
    """The driver's version, by ``nvidia-smi`` where it is there."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=10).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def groups(todo: list[Item]) -> Iterator[Together]:
    """Measurements of one part, some at a time."""
    for part in dict.fromkeys(item.part for item in todo):
        of_part = [item for item in todo if item.part == part]
        size = GROUP.get(part, _GROUP)
        yield from (Together(tuple(of_part[i : i + size])) for i in range(0, len(of_part), size))


def in_workers(jobs: list[Together], limit: float, report: Report, count: int = 1) -> list[Item]:
    """Run jobs in workers of the card; returns what was in jobs that gave nothing, for another try."""
    lost = []
    for number, outcome in Workers(count, limit).run(jobs, lambda number, news: None):
        rows, group = outcome.result, jobs[number].items
        if rows is None and len(group) > 1:
            lost += group
            continue
        only = {"part": group[0].part, "name": group[0].name, "status": "failed", "reason": outcome.reason}
        report.add([only] if rows is None else rows)
    return lost


def main(device: str, size: Size, folder: Path, whole: float, parts: Container[str], *, fresh: bool) -> int:
    """Measure what is missing of these parts and write; how many measurements failed."""
    start = time.monotonic()
    report = Report(folder, environment(device, size), fresh=fresh)

    def left() -> bool:
        return time.monotonic() - start < whole

    todo = [item for item in items(device, size) if item.part in parts and not report.done(f"{item.part}: {item.name}")]
    untimed = [item for item in todo if item.part == "agreement"]
    lost = in_workers(list(groups(untimed)), GROUP_S, report, min(4, os.cpu_count() or 1))
    for group in (*(Together((item,)) for item in lost), *groups([item for item in todo if item not in untimed])):
        if left():
            for item in in_workers([group], GROUP_S if len(group.items) > 1 else SINGLE_S, report):
                if left():
                    in_workers([Together((item,))], SINGLE_S, report)
    late = {"status": "failed", "reason": "no time left"}
    with tempfile.TemporaryDirectory() as store:
        for part, run in whole_runs(device, size, Path(store)).items():
            if part in parts and not report.done(f"{part}: all"):
                report.add(run_of(part, run) if left() else [{"part": part, "name": "all", **late}])
    for item in todo:
        if f"{item.part}: {item.name}" not in report.rows:
            report.add([{"part": item.part, "name": item.name, **late}])
    print(folder / "README.md")
    return sum(row["status"] == "failed" for row in report.rows.values())


def run_of(part: str, run: Callable[[], list[CellRecord]]) -> list[Row]:
    """The rows of a whole run, and one of the run itself."""
    rows: list[Row] = []

    def all_cells() -> Row:
        rows.extend(row_of(part, cell) for cell in run())
        failed = sum(row["status"] == "failed" for row in rows)
        return {"status": "failed", "reason": f"{failed} of {len(rows)} cells failed"} if failed else {}

    return [measured(Item(part, "all", all_cells)), *rows]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, or cpu in its place")
    parser.add_argument("--fast", action="store_true", help="smaller sizes")
    parser.add_argument("--part", action="append", help="a heading of the page, again and again; all by default")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    parser.add_argument("--seconds", type=float, default=WHOLE_S, help="wall-clock limit after which nothing is begun")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    torch.set_num_threads(1)
    try:
        place = resolve_device(given.device)
    except Exception as error:
        sys.exit(f"card.py: {error}")
    chosen = FAST if given.fast else FULL
    known = {item.part for item in items(place, chosen)} | set(whole_runs(place, chosen, given.out))
    if wrong := set(given.part or ()) - known:
        sys.exit(f"card.py: --part {min(wrong)}: no such part; known are {', '.join(sorted(known))}")
    raise SystemExit(main(place, chosen, given.out, given.seconds, given.part or known, fresh=given.fresh) > 0)
