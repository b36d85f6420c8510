"""What a declared grid gives where a paper states neither settings nor a rule: ``python tests/studies/papers --reach [NAME ...]``.

Each grid of ``GRIDS`` runs one setting, everything else as in the preset that is named, on the protocol of the paper's suite:
over a factor of 100, once extended by ten where the smallest error is at an end, or over the grid that the paper itself
names. Where the number of iterations is ours, the best value is run five times as long as well, which was added after the
first runs had ended above the printed errors. A published number is within reach where it is between the least and the
largest mean of the grid, or no farther from them than the tolerance. That is a statement on the grid's width as much as on
the paper, and never agreement.

Writes ``reach.csv``, a published number a line: the least and the largest value of the grid, and the best. Finished runs stay
in a store.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import yaml

from parvibench.api.run import run
from parvibench.core.result import CellRecord, Status

from .kinds import add_lines


@dataclass(frozen=True)
class Grid:
    """Values of one setting of a method on a task, and the published numbers that they are compared with."""

    task: str
    algorithm: str
    preset: str
    values: tuple[float, ...]
    pointer: str  #: of the published numbers, without their metric
    likelihood: str = "NLL"  #: its name in the paper; ``LL`` is its negative
    replicates: int = 1
    setting: str = "step_size"
    fixed: tuple[tuple[str, str | float], ...] = ()  #: further settings, for want of a preset
    iterations: int | None = None
    particles: int | None = None
    longer: tuple[float, ...] = ()  #: values that are run ``LONGER`` times as long, too
    named: bool = False  #: by the paper: not extended

    @property
    def name(self) -> str:
        """Of the grid."""
        return f"{self.task}/{self.algorithm}"

    @property
    def points(self) -> list[tuple[float, int | None]]:
        """Values and iterations of the runs."""
        return [(v, self.iterations) for v in self.values] + [(v, LONGER * (self.iterations or 0)) for v in self.longer]

    def further(self, cells: Sequence[CellRecord]) -> Grid:
        """Extended by a factor of ten where the best error is at an end, and by a longer run of the best value."""
        errors = self.means(cells, "rmse")
        if self.named or not errors:
            return self
        best, _ = min(errors, key=errors.__getitem__)
        low, high = self.values[0], self.values[-1]
        values = {low: (low / 10, *self.values), high: (*self.values, high * 10)}.get(best, self.values)
        return replace(self, values=values, longer=(best,) if self.iterations else ())

    def means(self, cells: Sequence[CellRecord], metric: str) -> dict[tuple[float, int | None], float]:
        """Of the runs in which no replicate diverged."""
        found = {}
        for point, cell in zip(self.points, cells, strict=True):
            gave = [v for v in cell.values.get(metric, []) if v is not None and math.isfinite(v)]
            if len(gave) == self.replicates:
                found[point] = sum(gave) / len(gave)
        return found

    def suite(self) -> dict[str, object]:
        """A suite with a row a run."""
        rows = []
        for value, iterations in self.points:
            row = {"task": self.task, "algorithm": self.algorithm, "preset": self.preset}
            longer = "" if iterations == self.iterations else "-longer"
            row |= {"label": f"{self.algorithm}-{value:g}{longer}", "iterations": iterations}
            row["settings"] = {**dict(self.fixed), self.setting: value}
            rows.append({key: v for key, v in row.items() if v is not None})
        return {"name": "reach", "rows": rows, "replicates": self.replicates, "metrics": ["nll", "rmse"]}


#: Times the iterations, of the longer run of the best value.
LONGER = 5
#: Sets of SRLD's Table 1, where SVGD's row is no copy.
_SRLD = {"Boston": "boston", "Concrete": "concrete", "Energy": "energy", "Naval": "naval", "Yacht": "yacht"}
#: Of KSIVI's Table 1, without Boston, the one set with a public configuration.
_KSIVI = {"Yacht": "yacht", "Concrete": "concrete", "Wine": "wine-red", "Power": "power", "Protein": "protein"}
#: SIVI on networks: sampler, pre-training, schedule and batches of KSIVI on Boston; the mixing draws of its own preset.
_SIVI = (
    ("batch", 100), ("latent_dim", 3), ("hidden", 10), ("log_var_init", -8.0), ("beta2", 0.999), ("decay", 0.9),
    ("decay_every", 3000), ("pretraining", 99), ("pretraining_rate", 0.01),
)  # fmt: skip
GRIDS = (
    *(
        Grid(
            f"bnn-{s}-srld", "svgd", "bnn-liu-wang", (1e-4, 1e-3, 1e-2), f"srld/table-1/{name}/SVGD", "LL", 20,
            iterations=2000, particles=20,
        )
        for name, s in _SRLD.items()
    ),
    *(
        Grid(f"bnn-{s}-ksivi", "ksivi", f"bnn-{s}-ksivi", (1e-4, 1e-3, 1e-2), f"ksivi/table-1/{name}/KSIVI")
        for name, s in _KSIVI.items()
    ),
    *(
        Grid(f"bnn-{s}-ksivi", "sivi-sm", "bnn-boston-ksivi", (2e-6, 2e-5, 2e-4), f"ksivi/table-1/{name}/SIVI-SM")
        for name, s in _KSIVI.items()
    ),
    *(
        Grid(
            f"bnn-{s}-ksivi", "sgld", f"bnn-{s}-ksivi", (1e-5, 2e-5, 2.5e-5, 5e-5), f"ksivi/table-1/{name}/SGLD",
            named=True,
        )
        for name, s in _KSIVI.items()
        if name != "Wine"  # whose entry is a copy
    ),
    *(
        Grid(
            f"bnn-{s}-ksivi", "sivi", "blr-waveform", (1e-4, 1e-3, 1e-2), f"ksivi/table-1/{name}/SIVI", fixed=_SIVI,
            iterations=20_099,
        )
        for name, s in {"Boston": "boston", **_KSIVI}.items()
        if name != "Wine"
    ),
)  # fmt: skip


def measure(named: Sequence[str], store: Path, out: Path) -> None:
    """Run the grids that are named, or all; the table is written after each."""
    store.mkdir(parents=True, exist_ok=True)
    for grid in GRIDS:
        if named and grid.name not in named:
            continue
        cells = _ran(grid, store)
        if (wider := grid.further(cells)) != grid:
            grid, cells = wider, _ran(wider, store)
        lines = pd.DataFrame(lines_of(grid, cells))
        print(lines.to_string(), flush=True)
        add_lines(lines, out / "reach.csv")


def _ran(grid: Grid, store: Path) -> Sequence[CellRecord]:
    file = store / "reach.yaml"
    file.write_text(yaml.safe_dump(grid.suite()), encoding="utf-8")
    fixed = {"particles": grid.particles, "workers": 0, "timeout": 7200.0}
    ran = run(str(file), out=store / "runs", tracking=False, **fixed)
    if any(cell.status not in (Status.OK, Status.DIVERGED) for cell in ran.cells) or ran.unfinished:
        raise SystemExit(f"{grid.name}: not all of its runs have ended; the same command goes on")
    return ran.cells


def lines_of(grid: Grid, cells: Sequence[CellRecord]) -> list[dict[str, object]]:
    """A published number a line: what the runs of a grid gave, means over the replicates."""
    lines = []
    for metric, named, sign in (("rmse", "RMSE", 1), ("nll", grid.likelihood, -1 if grid.likelihood == "LL" else 1)):
        gave = grid.means(cells, metric)
        if not gave:
            continue
        best, iterations = min(gave, key=gave.__getitem__)
        ends = sorted(sign * mean for mean in gave.values())
        note = f"a grid of {len(grid.values)} step sizes from {grid.values[0]:g} to {grid.values[-1]:g}"
        if iterations:
            note += f", {grid.iterations:,} iterations{f' and at {grid.longer[0]:g} {LONGER} times as many' if grid.longer else ''}"
        note += f"; ours is the best, at {best:g}{f' and {iterations:,} iterations' if iterations else ''}"
        if best in (grid.values[0], grid.values[-1]):
            note += ", an end of the grid"
        if lost := len(grid.points) - len(gave):
            note += f"; {lost} diverged"
        if grid.pointer.startswith("ksivi") and "/Boston/" not in grid.pointer:
            note += "; a split of ours, as the authors' file is not public"
        pointer, low, high = f"{grid.pointer}/{named}", ends[0], ends[-1]
        ours = {"mean": sign * gave[(best, iterations)], "low": low, "high": high, "n": len(gave)}
        lines.append({"pointer": pointer, **ours, "note": note})
    return lines
