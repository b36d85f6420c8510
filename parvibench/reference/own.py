"""User-defined references: of a task from a file, or from existing draws; samples judged by draws that were given.

They are cheaper than the shipped ones: 5,000 rows, floors of the metrics of the task's verdict, and floors from sets that
share draws. A set of n is drawn without replacement from a pool of at least ten times as many; the pool's draws come from
earlier times of the chains than the rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core import OWN_REFERENCES, registry
from parvibench.core.errors import InputError, ShapeError, UnsupportedError
from parvibench.core.metric import Context, Cost
from parvibench.core.reference import Reference, fingerprint_rows
from parvibench.core.target import Target
from parvibench.core.task import Task
from parvibench.data.draws.naming import listed
from parvibench.data.samples import Draws
from parvibench.metrics.compute import compute, in_parallel
from parvibench.metrics.equivalent import V_STATISTICS, v_constants
from parvibench.metrics.evaluate import chain_diagnostics, evaluate_samples
from parvibench.metrics.floors import SETS_A_METRIC, SIZES, Notify, density_of, silent, verdict_metrics
from parvibench.metrics.mmd import self_similarity
from parvibench.metrics.pairwise import median_distance, thin
from parvibench.targets.densities import METRICS

from .certificates import floor_summaries, identity, origin, write
from .long_run import diagnostics
from .own_gates import SEED, Effort, Gate, chains_of, density_gates, grade_of, mixing_gates, refusal, summary

#: Rows of a reference, and draws of the pool that floors come from.
ROWS, POOL = 5000, 100_000
#: A pool holds at least this many times the draws of a set.
_TIMES = 10
#: And this many for samples at hand: a metric's test of exact draws at 5% rejects 3 to 6%, by simulation.
_TIMES_ONCE = 5
#: Fewest draws of a reference on disk, and of one for samples at hand.
_FEWEST_DRAWS, _FEWEST_ONCE = 1000, 400
#: Draws worth less than this share of their number are correlated; the smallest of many ESS is low by chance.
_INDEPENDENT = 0.5
#: Sizes that the curve of the sliced distance has besides ``SIZES``.
_CURVE = (2, 5, 10, 25)
_FEWEST = 200
#: Largest share of chains that have not moved between two times.
_REPEATED = 1e-4
#: How far single precision may move a draw, in standard deviations: a fifth of what counts as a copy.
_MOVED = 1e-6
#: Spreads below this, or above its inverse, are measured in a unit of their own.
_SMALLEST = 1e-18
#: A column is constant if its values differ by no more than this of their size: rounding in double precision.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True)
class DrawsTask(Task):
    """A law of which draws are all that is known, and what samples are compared by then."""

    name: str = "given-draws"
    summary: str = "draws given as reference"
    tags: frozenset[str] = frozenset({"own"})
    citation: str = ""
    metrics: tuple[str, ...] = tuple(metric for metric in METRICS if metric not in ("ksd", "tail_error"))

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """None: ``UnsupportedError``."""
        raise UnsupportedError(f"{self.name}: the density is not known")

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """None: ``UnsupportedError``."""
        raise UnsupportedError(f"{self.name}: there is no start")


def build_own(
    task: Task, folder: Path | None, effort: Effort, notify: Notify, *, uncertified: bool = False
) -> tuple[Path, list[Gate]]:
    """Run chains (or draw exactly), certify them, and write the reference; the certificate's path and its gates.

    Raises:
        InputError: ``method="exact"`` of a task without exact draws.
        Refused: a gate failed, unless ``uncertified``; which, by how much, and what would help.
    """
    if effort.method == "exact":
        g = Generator().manual_seed(SEED)
        try:
            draws = task.exact(min(POOL, effort.chains * effort.draws) + ROWS, g)
        except UnsupportedError:
            raise InputError(
                f"{task.name} has no exact sampler; give pb.task(..., exact=...), or use --method nuts"
            ) from None
        rows, pool = draws[:ROWS], draws[ROWS:]
        gates, record = density_gates(task, rows), {"method": "exact sampler", "exact": True}
    else:
        main, gates, run = chains_of(task, effort, notify)
        if uncertified or all(gate.passed for gate in gates):
            gates += density_gates(task, main)
        (rows, pool), record = _parts(main), {"method": f"chains by {effort.method}", "run": run}
    if not uncertified and not all(gate.passed for gate in gates):
        raise refusal(task.name, gates)
    return _written(task, folder, rows, pool, gates, record, notify), gates


def build_from_draws(
    task: Task, folder: Path | None, draws: Tensor, notify: Notify, run: Mapping[str, Any] | None = None
) -> tuple[Path, list[Gate]]:
    """Write the reference of a task from draws that one has, (C, T, D) or (n, D); the certificate's path and its gates.

    It is marked as not certified where a gate fails. Draws of unknown order count as one chain; ``run`` is what else the
    certificate records of the run that made them. ``InputError`` for draws of another dimension, or fewer than 1,000.
    """
    chains = _time_major(task, draws)
    found = diagnostics(chains)
    rows, pool = _parts(chains)
    gates = mixing_gates(task, found)
    if density_of(task) is not None:
        gates += density_gates(task, chains)
    record = {
        "method": "draws that were given",
        "run": {**(run or {}), "main": summary(found)},
        "grade": grade_of(gates, found),
    }
    return _written(task, folder, rows, pool, gates, record, notify), gates


def reference_of_draws(task: Task, draws: Tensor, n: int) -> Reference:
    """A reference in memory, for samples worth n independent draws: floors at the two largest sizes there can be.

    The largest is n, or a fifth of the draws that floors come from, so that no sample is left out without need; of
    correlated draws a fifth of what they are worth. ``InputError`` as of ``build_from_draws``, or for fewer than 400.
    """
    chains = _without_repeats(_time_major(task, draws, _FEWEST_ONCE))
    rows, pool = _parts(chains)
    total, found = chains.shape[0] * chains.shape[1], chain_diagnostics(chains.transpose(0, 1))
    worth = total if found is None else int(found["worth"])
    worth = worth if worth < _INDEPENDENT * total else total
    own = min(n, len(pool) * worth // total // _TIMES_ONCE, max(SIZES))
    sizes = sorted({size for size in SIZES if size < own} | ({own} if own >= min(SIZES) else set()))[-2:]
    head = {"exact": False, "certified": False, "made_for": sizes[-1:], "worth": worth, "given": total}
    return _calibrated(task, rows, pool, head, silent, sizes)


def _time_major(task: Task, draws: Tensor, fewest: int = _FEWEST_DRAWS) -> Tensor:
    """Draws as (T, C, D); ``InputError`` where they are none of the task, or too few."""
    x = torch.as_tensor(draws, dtype=torch.float64)
    x = x[None] if x.dim() == 2 else x
    if x.dim() != 3 or x.shape[2] != task.dim:
        raise InputError(
            f"{task.name} wants reference draws of shape (n, {task.dim}) or (chains, draws, {task.dim}), got {tuple(draws.shape)}"
        )
    if not bool(x.isfinite().all()):
        raise InputError("the reference draws hold NaN or infinity")
    if x.shape[0] * x.shape[1] < fewest:
        raise InputError(
            f"{x.shape[0] * x.shape[1]} reference draws are too few: {fewest:,} are needed, 20,000 are good"
        )
    return x.transpose(0, 1)


def _parts(draws: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the reference, from the later times of (T, C, D), evenly spaced, and the pool of the floors, from the earlier.

    Draws are independent of those at other ends of long chains; a gap of a tenth of the time lies between.
    """
    draws = _without_repeats(draws)
    times = len(draws)
    late, early = draws[-(times // 3) :], draws[: times - times // 3 - times // 30]
    return thin(late.flatten(0, 1), ROWS), thin(early.flatten(0, 1), POOL)


def _without_repeats(draws: Tensor) -> Tensor:
    """Every k-th time of (T, C, D), k the smallest at which hardly any chain stands where it stood.

    Two draws in one place would be nearest neighbours at distance zero. Values that repeat at any distance in time, as
    counts do, are no standing still.
    """
    half = len(draws) // 2
    anyhow = 1.5 * float((draws[half:] == draws[: len(draws) - half]).all(-1).double().mean())
    for k in range(1, max(2, len(draws) // 20)):
        kept = draws[::k]
        if float((kept[1:] == kept[:-1]).all(-1).double().mean()) <= max(_REPEATED, anyhow):
            break
    return kept


def _written(
    task: Task, folder: Path | None, rows: Tensor, pool: Tensor, gates: list[Gate], record: dict[str, Any],
    notify: Notify,
) -> Path:  # fmt: skip
    row = registry.tasks().get(task.name)
    if folder is None and row is not None and row.built_in:
        raise InputError(f"{task.name} is a built-in task: name a folder of your own with --folder")
    conditions = [{"gate": g.name, "passed": g.passed, "found": g.found} for g in gates]
    named = {"coordinates": list(found)} if (found := getattr(task, "coordinates", ())) else {}
    record = {"exact": False, **record, "certified": all(gate.passed for gate in gates), "gates": conditions}
    head = {**identity(task), **named, **record, **origin(SEED)}
    reference = _calibrated(task, rows, pool, head, notify)
    target = density_of(task)
    arrays = {"draws": reference.draws.to(_precision(rows)).numpy()}
    if target is not None:
        arrays["scores"] = target.score(reference.draws[None, : fingerprint_rows(task.dim)])[0].detach().numpy()
    place = (folder or OWN_REFERENCES).resolve()
    return write(place, task.name, reference.certificate, arrays, reference.floors)


def _calibrated(
    task: Task, rows: Tensor, pool: Tensor, head: dict[str, Any], notify: Notify, sizes: Sequence[int] | None = None
) -> Reference:
    """A reference with moments of all draws, bandwidth, floors and the constants of ``mmd2``."""
    stored = rows.to(_precision(rows)).double()
    every = torch.cat([rows, pool])
    sd = every.std(0)
    shown = [None] * task.dim if task.facts.infinite_moments else sd.tolist()
    certificate = head | {"rows": len(stored), "mean": every.mean(0).tolist(), "sd": shown}
    if task.standardised:
        matrices = {"covariance": torch.cov(every.T), "correlation": torch.corrcoef(every.T)}
        numbers = {name: float(f"{torch.linalg.cond(matrix):.3g}") for name, matrix in matrices.items()}
        certificate |= {"units": sd.tolist(), "condition_numbers": numbers}
    reference = Reference(stored, bool(head["exact"]), certificate)
    compared = reference.in_units(stored)
    certificate["bandwidth"] = median_distance(compared)
    certificate["self_similarity"] = self_similarity(compared, certificate["bandwidth"])
    g = Generator().manual_seed(SEED)

    def drawn(n: int) -> Tensor:
        return pool[torch.randperm(len(pool), generator=g)[:n]]

    if known := [metric for metric in V_STATISTICS if metric in task.metrics]:
        size = min(5000, len(pool) // 2)
        constants = v_constants(task, reference, (drawn(size) for _ in range(10)), metrics=known)
        certificate["v_statistics"] = constants
    sizes = [n for n in SIZES if n * _TIMES <= len(pool)] if sizes is None else sizes
    floors = _floors(task, reference, drawn, sizes, notify)
    certificate["floors"] = floor_summaries(floors)
    certificate["without_floor"] = [name for name in verdict_metrics(task) if floors and name not in floors]
    return replace(reference, certificate=certificate, floors=floors)


def _precision(rows: Tensor) -> torch.dtype:
    """Single precision, unless rounding would move a coordinate visibly: far from the origin, or beyond its range."""
    moved = (rows.to(torch.float32).double() - rows).abs().amax(0)
    return torch.float32 if bool((moved <= _MOVED * rows.std(0)).all()) else torch.float64


def _floors(
    task: Task, reference: Reference, drawn: Callable[[int], Tensor], sizes: Sequence[int], notify: Notify
) -> dict[str, dict[int, Any]]:
    """Floors of the metrics of the task's verdict: metric -> size -> sorted values."""
    context = Context(task, reference, density_of(task))
    metrics = verdict_metrics(task)
    sets = max(_FEWEST, SETS_A_METRIC * len(metrics))
    floors: dict[str, dict[int, Any]] = {}
    curve = _CURVE if "sliced_w2" in metrics and len(sizes) > 1 else ()
    plans = [*((n, metrics) for n in sizes), *((n, ["sliced_w2"]) for n in curve)]
    for number, (n, names) in enumerate(plans):
        found: dict[str, list[float]] = {}
        batches = (x[None] for x in map(drawn, repeat(n, sets)))
        for i, (values, _) in enumerate(in_parallel(partial(compute, names, context=context), batches)):
            for name, value in values.items():
                found.setdefault(name, []).append(float(value[0]))
            if i % 20 == 0:
                notify(f"floors at n = {n}, size {number + 1} of {len(plans)}", i, sets)
        for name, numbers in found.items():
            if np.isfinite(numbers).all():  # else a coordinate has one value, or rows repeat
                floors.setdefault(name, {})[n] = np.sort(numbers)
    return floors


def evaluate_against(
    draws: Draws, given: Draws, metrics: Sequence[str] | None, cost: Cost | None, task: Task | None = None
) -> dict[str, Any]:
    """The document of ``evaluate`` for samples and reference draws, whose columns correspond.

    Without a task, columns that have one value in every draw of both are left out: there is nothing to compare.

    Raises:
        ShapeError: another number of columns.
        InputError: the samples are the reference, no column varies, or as of ``reference_of_draws``.
    """
    wide, own = draws.values.shape[-1], given.values.shape[-1]
    if task is None and wide != own:
        hint = (
            "; if they are chains of one number, say --axes chain,draw" if own == 1 and draws.values.ndim == 2 else ""
        )
        raise ShapeError(f"the samples have {_columns(wide)}, the reference has {_columns(own)}{hint}")
    if draws.values.shape == given.values.shape and np.array_equal(draws.values, given.values):
        raise InputError("samples and reference are the same draws: give draws that are independent of the samples")
    said = list(draws.read)
    if task is None:
        draws, given, constant = _varying(draws, given)
        said += [f"constant, and left out: {listed(constant)}"] if constant else []
        task = DrawsTask(dim=draws.values.shape[-1])
        unit = _unit(given.values)
        if unit != 1:
            draws, given = (replace(d, values=d.values / unit) for d in (draws, given))
            said.append(f"in units of {unit:.3g}")
    x = torch.tensor(draws.values)
    known = chain_diagnostics(x) if x.dim() == 3 else None
    n = x.numel() // x.shape[-1]
    n = n if known is None else min(n, int(known["worth"]))
    reference = reference_of_draws(task, torch.tensor(given.values), n)
    if (worth := reference.certificate["worth"]) < (total := reference.certificate["given"]):
        said.append(f"the {total:,} draws of the reference are correlated, worth {worth:,} independent ones")
    document = evaluate_samples(task, x, cost, metrics, reference, draws.names)
    return document | {"read": "; ".join(said)}


def _unit(x: NDArray[np.float64]) -> float:
    """A power of two near the largest spread where squares, or single precision, would leave their range; else 1."""
    spread = float(np.nanmax(np.ptp(x.reshape(-1, x.shape[-1]), axis=0)))
    extreme = math.isfinite(spread) and not _SMALLEST < spread < 1 / _SMALLEST
    return 2.0 ** round(math.log2(spread)) if extreme else 1.0


def _columns(count: int) -> str:
    return f"{count} column" + ("s" if count > 1 else "")


def _varying(draws: Draws, given: Draws) -> tuple[Draws, Draws, list[str]]:
    """Both without the columns that have one value in all draws, and the names of these."""
    both = [d.values.reshape(-1, d.values.shape[-1]) for d in (draws, given)]
    constant = _constant(np.concatenate(both))
    if not constant.any():
        return draws, given, []
    if constant.all():
        raise InputError("every column has one value in all draws, of samples and reference alike: nothing to compare")
    names = draws.names or tuple(f"column {i + 1}" for i in range(len(constant)))
    left = [name for name, out in zip(names, constant, strict=True) if out]
    kept = [i for i, out in enumerate(constant) if not out]
    draws, given = (
        replace(d, values=d.values[..., kept], names=tuple(d.names[i] for i in kept) if d.names else ())
        for d in (draws, given)
    )
    return draws, given, left


def _constant(x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which columns of (n, d) have one value, up to rounding."""
    with np.errstate(invalid="ignore"):
        low, high = x.min(0), x.max(0)
        return np.asarray(high - low <= _ROUNDING * np.abs(low))
