"""How time and memory grow: fitted exponents, ``python tests/benchmarks/growth.py``.

One axis is varied at a time over a range in which its own work dominates. The exponent is the slope of log time (or
log memory) over log size, by least squares over the upper sizes. ``theory`` is what the method's arithmetic allows;
caches and fixed costs may pull the slope of times below it, and falling out of a cache a little above, so times
may exceed it by 0.25, memory by 0.1. Times are processor seconds of one thread, the least of several turns; memory is the
peak of what PyTorch allocates in one step (of steps beyond 1 s, the peak of resident memory); an axis
has a process of its own. Linux only. Writes into ``reports/benchmarks/``.
"""

import argparse
import ctypes
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    from pairing import restart_in_environment

    restart_in_environment()

import matplotlib
import numpy as np
import torch
from matplotlib import pyplot
from pairing import seconds_per_unit, steps_for
from stepping import Stepper, looped
from torch.profiler import ProfilerActivity, profile

from parvibench.core.task import Task
from parvibench.harness.store.environment import hardware
from parvibench.nn.mlp import MLP
from parvibench.tasks.logistic import LogisticTarget
from parvibench.tasks.mixtures import _lapd_mixture

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "benchmarks"
#: Measures whole commands.
STORES = Path(__file__).with_name("store_growth.py")
SLACK = {"time": 0.25, "memory": 0.1}
#: Sizes of an axis whose slope is fitted: the upper ones.
FITTED = 3
#: Steps that take longer are timed once.
SLOW_S = 1.0


@dataclass(frozen=True)
class Axis:
    """What grows, how far, and the exponents that theory allows."""

    name: str
    make: Callable[[int], Callable[[], object]]
    sizes: tuple[int, ...]
    theory: dict[str, float]


def step_of(task: str | Task, method: str, settings: dict[str, Any], particles: int, replicates: int = 1) -> Any:
    """A step of one chunk."""
    return Stepper(task, method, settings, particles, tuple(range(replicates))).step


def score_on_rows(rows: int) -> Callable[[], object]:
    """The score of 100 particles on that many rows of a logistic regression in 22 dimensions."""
    generator = torch.Generator().manual_seed(0)
    target = LogisticTarget(torch.randn(rows, 22, generator=generator), 0.01)
    x = torch.randn(1, 100, 22, generator=generator)
    return lambda: target.score(x)


def network_of(width: int) -> Callable[[], object]:
    """Forward and backward of 100 points through two hidden layers of that width."""
    net = MLP((10, width, width, 10), "tanh")
    parameters = net.initialise(torch.rand(1, net.n_parameters))
    x = torch.randn(1, 100, 10)
    return lambda: net.backward(parameters, net.forward(parameters, x), x)


def metric_on(name: str, n: int) -> Callable[[], object]:
    """A metric of n samples."""
    import metric_jobs

    from parvibench.core.registry import load_metric

    return lambda: load_metric(name).compute(metric_jobs.samples(n), metric_jobs.context())


_QUADRATIC, _LINEAR = {"time": 2.0, "memory": 2.0}, {"time": 1.0, "memory": 1.0}
_SVGD = {"step_size": 1e-3, "bandwidth": "median-sampled"}
AXES = (
    Axis("SVGD, particles (D = 2)", lambda n: step_of("multimodal", "svgd", {"step_size": 0.01}, n),
         (500, 1000, 2000, 4000, 8000), _QUADRATIC),
    Axis("SVGD, particles in blocks (D = 2)", lambda n: step_of("multimodal", "svgd", {"step_size": 1e-3, "bandwidth": 0.5}, n),
         (20_000, 40_000, 100_000), {"time": 2.0, "memory": 1.0}),
    Axis("SVGD, dimension (200 particles)", lambda d: step_of(_lapd_mixture(d), "svgd", _SVGD, 200),
         (32, 512, 2048, 10_000, 100_000), _LINEAR),
    Axis("SVGD, replicates (100 particles, D = 2)",
         lambda r: step_of("multimodal", "svgd", {"step_size": 0.01}, 100, r), (4, 8, 16, 32), _LINEAR),
    Axis("SIFG, particles (D = 2)", lambda n: step_of("gmm5-2d", "sifg", {"preset": "gmm5-2d"}, n),
         (500, 1000, 2000, 4000, 8000), _LINEAR),
    Axis("SIFG, dimension (100 particles)", lambda d: step_of(_lapd_mixture(d), "sifg", {"step_size": 1e-3}, 100),
         (128, 512, 2048, 10_000, 100_000), _LINEAR),
    Axis("ULA, chains (D = 2)", lambda n: step_of("banana", "ula", {}, n), (4000, 16000, 64000), _LINEAR),
    Axis("ULA, dimension (100 chains)", lambda d: step_of(_lapd_mixture(d), "ula", {}, 100),
         (2, 32, 512, 10_000, 100_000), _LINEAR),
    Axis("SRLD, replicates (one chain, D = 2)", lambda r: step_of("banana", "srld", {"spacing": 1}, 1, r),
         (1000, 4000, 16000), _LINEAR),
    Axis("KSIVI, batch (banana)", lambda m: step_of("banana", "ksivi", {"batch": m}, 1), (250, 500, 1000, 2000),
         _QUADRATIC),
    Axis("MALA, chains (logistic regression, 569 rows)",
         lambda n: step_of("blr-breast-cancer", "mala", {"step_size": 1e-4}, n), (125, 500, 2000), _LINEAR),
    Axis("score of 100 particles, rows", score_on_rows, (1000, 4000, 16000), _LINEAR),
    Axis("network of 100 points, width", network_of, (128, 256, 512, 1024), _QUADRATIC),
    Axis("MMD, samples", partial(metric_on, "mmd2"), (1000, 2000, 4000, 8000, 100_000), {"time": 2.0, "memory": 1.0}),
    Axis("KSD, samples", partial(metric_on, "ksd"), (1000, 2000, 4000, 8000, 100_000), {"time": 2.0, "memory": 1.0}),
    Axis("sliced W2, samples", partial(metric_on, "sliced_w2"), (1000, 4000, 16000, 100_000), {"time": 1.1, "memory": 1.0}),
)  # fmt: skip


def cost_of(step: Callable[[], object], seconds: float, turns: int) -> tuple[float, int]:
    """Processor seconds of a step, the least of several turns, since what else the machine does only adds; peak bytes.

    A slow step is timed once, and its memory is what the kernel says.
    """
    run = looped(step)
    # The first call also makes what later ones keep; of memory that was given back every page has to be mapped again.
    if seconds_per_unit(run, 1) > SLOW_S and (took := seconds_per_unit(run, 1)) > SLOW_S:
        before = fresh_peak()
        step()
        return took, max(0, resident("VmHWM") - before)
    steps = steps_for(run, seconds)
    peak = min(allocated(step) for _ in range(5))  # now and then a step draws the noise of many
    return min(seconds_per_unit(run, steps) for _ in range(turns)), peak


def allocated(step: Callable[[], object]) -> int:
    """Most bytes that a step holds at once beyond what it found, by the allocator's own record."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    events = record.profiler.kineto_results.events()
    return max(accumulate(e.nbytes() for e in events if e.name() == "[memory]"))


def fresh_peak() -> int:
    """Give free memory back, let the kernel count the peak anew, and return what is resident now, bytes.

    The profiler cannot say it of a slow step: its records cut the heap into pieces, 18 GB of them in a step of SVGD with
    100,000 particles that holds 69 MiB.
    """
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def resident(entry: str) -> int:
    """``VmRSS``, the resident memory of this process, or ``VmHWM``, its peak; bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(entry))


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """Slope of the upper sizes on logarithmic axes."""
    return float(np.polyfit(np.log(sizes[-FITTED:]), np.log(values[-FITTED:]), 1)[0])


def measure(only: str, seconds: float, turns: int) -> list[dict[str, Any]]:
    """One row an axis."""
    rows = []
    for axis in AXES:
        if only not in axis.name:
            continue
        row: dict[str, Any] = {"axis": axis.name, "sizes": axis.sizes, "theory": axis.theory}
        row["time"], row["memory"] = [], []
        for size in axis.sizes:
            took, peak = cost_of(axis.make(size), seconds, turns)
            row["time"].append(took)
            row["memory"].append(peak)
        row["exponent"] = {kind: exponent(axis.sizes, row[kind]) for kind in SLACK}
        row["fine"] = all(row["exponent"][kind] <= axis.theory[kind] + SLACK[kind] for kind in SLACK)
        rows.append(row)
        print(line(row), file=sys.stderr, flush=True)
    return rows


def measure_apart(seconds: float, turns: int) -> list[dict[str, Any]]:
    """All axes, each in a process of its own: what one leaves in the heap is no memory of the next."""
    rows = []
    for axis in AXES:
        with tempfile.TemporaryDirectory() as folder:
            options = ["--only", axis.name, "--seconds", str(seconds), "--turns", str(turns), "--out", folder]
            subprocess.run(
                [sys.executable, __file__, *options], stdout=subprocess.DEVNULL, check=False
            )  # 1: too fast a growth
            rows += json.loads(Path(folder, "growth.json").read_text())
    return rows


def line(row: dict[str, Any]) -> str:
    """A row of the Markdown table."""
    found, theory = row["exponent"], row["theory"]
    return (
        f"| {row['axis']} | {row['sizes'][0]} to {row['sizes'][-1]} | {1e3 * row['time'][-1]:.3g} "
        f"| {found['time']:.2f} | {theory['time']:g} | {row['memory'][-1] / 2**20:.3g} | {found['memory']:.2f} "
        f"| {theory['memory']:g} | {'yes' if row['fine'] else '**no**'} |"
    )


def page(rows: list[dict[str, Any]]) -> str:
    """The Markdown page."""
    return f"""# How cost grows

Made by `python tests/benchmarks/growth.py` on {date.today().isoformat()}. {hardware("cpu")}, allocator of the
harness's workers. One axis is varied at a time; the exponent is the slope of log time (processor seconds of one step, least of several turns)
and of log memory (peak of PyTorch's own allocations within a step; beyond {SLOW_S:g} s a step, of resident memory) over log size, over the {FITTED} largest sizes.
*Theory* is what the arithmetic allows; `fine` allows {SLACK["time"]} more for times and {SLACK["memory"]} for memory.

| axis | sizes | ms at the largest | exponent | theory | MiB at the largest | exponent | theory | fine |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(line(row) for row in rows)}

![growth](growth.svg)
"""


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Times and memory over sizes, all on logarithmic axes, with the slope of theory."""
    matplotlib.rcParams["svg.hashsalt"] = "parvibench"
    columns = 3
    height = math.ceil(len(rows) / columns)
    size = (10, 2.4 * height)
    figure, grid = pyplot.subplots(height, columns, figsize=size, layout="constrained", squeeze=False)
    for axes, row in zip(grid.flat, rows, strict=False):
        sizes = np.array(row["sizes"], float)
        for kind, colour in (("time", "C0"), ("memory", "C1")):
            values = np.array(row[kind], float)
            axes.loglog(sizes, values / values[-1], "o-", color=colour, markersize=3, label=kind)
            axes.loglog(sizes, (sizes / sizes[-1]) ** row["theory"][kind], ":", color=colour, linewidth=1)
        axes.set_title(row["axis"], fontsize=8)
        axes.set_xticks(sizes, [str(size) for size in row["sizes"]])
        axes.minorticks_off()
        axes.tick_params(labelsize=7)
    for axes in grid.flat[len(rows) :]:
        axes.axis("off")
    grid.flat[0].legend(fontsize=7)
    figure.supylabel("relative to the largest size; dotted: theory", fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main(only: str, seconds: float, turns: int, folder: Path) -> int:
    """Measure and write; how many axes grow faster than they may."""
    torch.set_num_threads(1)
    rows = measure(only, seconds, turns) if only else measure_apart(seconds, turns)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "growth.json").write_text(json.dumps(rows, indent=1) + "\n")
    whole = (
        "" if only else subprocess.run([sys.executable, STORES], stdout=subprocess.PIPE, text=True, check=True).stdout
    )
    (folder / "growth.md").write_text(page(rows) + whole)
    picture(rows, folder / "growth.svg")
    print((folder / "growth.md").read_text())
    return sum(not row["fine"] for row in rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="axes whose name holds this")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    raise SystemExit(main(given.only, given.seconds, given.turns, given.out) > 0)
