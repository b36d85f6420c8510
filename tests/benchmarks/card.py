"""What a GPU gives: ``python tests/benchmarks/card.py``, or ``make gpu``. Under 8 minutes, without network; installs nothing.

Writes ``reports/gpu``: every algorithm on the card and on the CPU, times of steps, NUTS with few and many chains and
BlackJAX's. Results are written one by one: started again, the program goes on where it stopped and
tries again what failed. ``--device cpu`` runs the same code in the card's place; ``--fast`` takes smaller sizes.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch

from parvibench.checks.targets import task_named
from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, floating_tensors, take_steps
from parvibench.core.errors import printable
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.harness.run.clock import Clock, peak_memory
from parvibench.harness.run.compiling import RecordedStep
from parvibench.harness.run.stepping import step_mode
from parvibench.harness.session import resolve_device
from parvibench.harness.store.environment import provenance
from parvibench.harness.workers.executors import Job, Notify
from parvibench.harness.workers.processes import Workers

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "gpu"
COMMAND = "python tests/benchmarks/card.py"
#: Wall-clock seconds: of the whole, of a group of measurements in one process, of one on its own.
WHOLE_S, GROUP_S, SINGLE_S = 480.0, 150.0, 90.0
GROUP = {"nuts": 1}
_GROUP = 12
#: Largest relative difference of a first step in single precision.
TOLERANCE = 1e-4
#: Steps until `--compile` has chosen between replays and plain steps.
SETTLED = 20
FAILED = {"status": "failed"}
#: Methods whose steps of many particles are measured.
MANY = ("svgd", "sgld", "mala", "nuts", "sifg", "ksivi", "smc", "mclmc")
NUTS_TARGETS = ("blr-breast-cancer", "funnel-10d")

Row = dict[str, Any]


class Size(NamedTuple):
    """How much is measured."""

    particles: tuple[int, int]  #: few and many, and chains of NUTS
    steps: int  #: timed of every algorithm


# SVGD of 10,000 particles takes half a second a step and replicate on one thread of a CPU.
FULL = Size((100, 10_000), 50)
FAST = Size((100, 1000), 10)


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


class Shared(Streams):
    """Streams of a device with the CPU's numbers."""

    def _fill(self, *address: Any) -> torch.Tensor:
        return Streams(self.seed, self.replicates, "cpu", self.dtype)._fill(*address).to(self.device)


def agrees(name: str, device: str) -> Row:
    """A first step on the card and on the CPU with the same random numbers: largest difference, of the largest number."""
    method = registry.load_algorithm(name)
    settings = method.make_settings(dict(method.example.quick))
    ids = (0,) if method.max_chunk == 1 else (0, 1, 2)
    states = []
    for place in ("cpu", device):
        task = task_named("unit")
        problem = Problem(
            task.target(ids, place, torch.float32), Shared(5, ids, place), start=task.initial, particles=16
        )
        with step_mode(method):
            state = method.init(problem, settings, problem.streams, 1)
            state, _ = next(take_steps(method.step, problem, settings, state))
        states.append([t.double().cpu() for t in floating_tensors(state) if t.numel()])
    apart = [float((a - b).abs().max() / max(1.0, float(a.abs().max()))) for a, b in zip(*states, strict=True)]
    row: Row = {"difference": max(apart, key=lambda v: math.inf if math.isnan(v) else v)}
    return row if row["difference"] <= TOLERANCE else row | FAILED | {"reason": "the card and the CPU disagree"}


def step_times(task: str, name: str, device: str, steps: int, particles: int, replicates: int) -> Row:
    """Steady milliseconds of a step as it is, with ``--compile`` and on one thread of the CPU; peak of memory.

    Not with ``--compile`` where a step has a program of its own. Replays must end at the state of the plain steps.
    """
    from stepping import Stepper

    method = registry.load_algorithm(name)
    settings, ids = dict(method.example.quick), tuple(range(min(replicates, method.max_chunk or replicates)))
    kinds = ("ms", "compiled ms", "CPU ms") if method.compiled_step() is None else ("ms", "CPU ms")
    row: Row = {"replicates": len(ids), "particles": particles}
    made = {}
    for kind in kinds:
        place = "cpu" if kind == "CPU ms" else device
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        made[kind] = Stepper(task, name, settings, particles, ids, device=place, compiled=kind == "compiled ms")
        found = clocked(partial(made[kind].run, 1), place, steps, first=SETTLED)
        row |= {kind: found["ms"], **({"peak MiB": found["peak MiB"]} if kind == "ms" else {})}
    row["times faster"] = row["CPU ms"] / row["ms"]
    if "compiled ms" in kinds:
        row |= {"recording s": made["compiled ms"].advance.seconds, "plain": made["compiled ms"].advance.left_plain}
        pairs = zip(*(floating_tensors(made[kind].state) for kind in ("ms", "compiled ms")), strict=True)
        if not all(torch.allclose(a, b, 1e-5, 1e-5, equal_nan=True) for a, b in pairs):
            return row | FAILED | {"reason": "replays differ from plain steps"}
    return row


def clocked(step: Callable[[], object], device: str, steps: int, first: int = 3) -> Row:
    """Milliseconds of a step after the first ones, by events on a card: median of five turns; and the peak of memory."""
    for _ in range(first):
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


def comparable() -> list[str]:
    """The algorithms that run in PyTorch; others leave the device to their own library."""
    methods = map(registry.load_method, registry.algorithms())
    return [m.name for m in methods if isinstance(m, Algorithm) and not m.library]


def items(device: str, size: Size) -> list[Item]:
    """All measurements."""
    names = comparable()
    found = [Item("agreement", name, partial(agrees, name, device)) for name in names]
    few, many = size.particles
    for part, task, of, steps, shape in (
        ("steps", "gmm5-2d", names, size.steps, (few, 10)),
        ("steps of a network", "bnn-boston", names, size.steps, (few, 1)),
        ("steps of many particles", "gmm5-2d", MANY, 5, (many, 1)),
    ):
        fit = (n for n in of if not registry.load_algorithm(n).needs - registry.load_task(task).provides)
        found += [Item(part, name, partial(step_times, task, name, device, steps, *shape)) for name in fit]
    for target in NUTS_TARGETS:
        for chains in size.particles:
            for compiled in (False, True):
                name = f"{target}, {chains} chains, {'compiled' if compiled else 'as it is'}"
                found.append(Item("nuts", name, partial(nuts, target, chains, device, size.steps, compiled=compiled)))
            others = partial(blackjax, target, chains, device, size.steps)
            found.append(Item("nuts", f"{target}, {chains} chains, BlackJAX", others))
    return found


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

- *agreement*: a first step with the CPU's random numbers, largest relative difference (at most {TOLERANCE:g}).
- *steps*: 10 replicates of 100 particles on gmm5-2d, milliseconds by events on the card after {SETTLED} steps, medians of
  five turns: as they are, as `--compile` replays them (*plain* says why it does not), and on one thread of the CPU. Peak
  memory is PyTorch's on a card, the process's otherwise. *steps of a network*, *of many particles*: one replicate.
- *nuts*: microseconds of a leapfrog step of one chain, all chains together.

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


def in_workers(job: Together, limit: float, report: Report) -> list[Item]:
    """Run measurements in a worker of the card; returns those of a group that gave nothing, for another try."""
    ((_, outcome),) = Workers(1, limit).run([job], lambda number, news: None)
    if outcome.result is None and len(job.items) > 1:
        return list(job.items)
    only = {"part": job.items[0].part, "name": job.items[0].name, "status": "failed", "reason": outcome.reason}
    report.add(outcome.result or [only])
    return []


def main(device: str, size: Size, folder: Path, whole: float, parts: Container[str], *, fresh: bool) -> int:
    """Measure what is missing of these parts and write; how many measurements failed."""
    start = time.monotonic()
    report = Report(folder, environment(device, size), fresh=fresh)

    def left() -> bool:
        return time.monotonic() - start < whole

    todo = [item for item in items(device, size) if item.part in parts and not report.done(f"{item.part}: {item.name}")]
    for group in groups(todo):
        if left():
            for item in in_workers(group, GROUP_S if len(group.items) > 1 else SINGLE_S, report):
                if left():
                    in_workers(Together((item,)), SINGLE_S, report)
    late = {"status": "failed", "reason": "no time left"}
    for item in todo:
        if f"{item.part}: {item.name}" not in report.rows:
            report.add([{"part": item.part, "name": item.name, **late}])
    print(folder / "README.md")
    return sum(row["status"] == "failed" for row in report.rows.values())


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
    known = {item.part for item in items(place, chosen)}
    if wrong := set(given.part or ()) - known:
        sys.exit(f"card.py: --part {min(wrong)}: no such part; known are {', '.join(sorted(known))}")
    raise SystemExit(main(place, chosen, given.out, given.seconds, given.part or known, fresh=given.fresh) > 0)
