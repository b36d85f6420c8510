"""User-defined references: of a task from a file, or from existing draws; samples judged by draws that were given.

They are cheaper than the shipped ones: 5,000 rows, floors of the metrics of the task's verdict, and floors from sets that
share draws. A set of n is drawn without replacement from a pool of at least ten times as many. None of the pool is among the
draws that the reference's rows, moments, unit and bandwidth are of: a floor's sets are compared as samples are. On disk the
pool's draws come from earlier times of the chains. References for samples at hand are small: of independent draws, several
random splits in rows and pool make a floor together.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from parvibench.data.draws.arrays import Draws
from parvibench.data.draws.naming import listed
from parvibench.metrics.compute import in_parallel, values_of
from parvibench.metrics.copies import Copies
from parvibench.metrics.divergence import NEAREST
from parvibench.metrics.equivalent import V_STATISTICS, v_constants
from parvibench.metrics.evaluate import chain_diagnostics, counted, evaluate_samples, serially_correlated
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
#: And independent draws this many times those judged, for samples at hand.
_TIMES_ONCE = 5
#: Random splits of the draws of a small reference, and draws of the pool of each over those of a set.
_SPLITS, _POOL_ONCE = 20, 2
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
            main = task.exact(min(POOL, effort.chains * effort.draws) + ROWS, g)[:, None]
        except UnsupportedError:
            raise InputError(
                f"{task.name} has no exact sampler; give pb.task(..., exact=...), or use --method nuts"
            ) from None
        part = _part(main)
        gates, record = density_gates(task, part.rows), {"method": "exact sampler", "exact": True}
    else:
        main, gates, run = chains_of(task, effort, notify)
        if uncertified or all(gate.passed for gate in gates):
            gates += density_gates(task, main)
        part, record = _part(main), {"method": f"chains by {effort.method}", "run": run}
    if not uncertified and not all(gate.passed for gate in gates):
        raise refusal(task.name, gates)
    return _written(task, folder, part, gates, record, notify), gates


def build_from_draws(
    task: Task, folder: Path | None, draws: Tensor, notify: Notify, run: Mapping[str, Any] | None = None
) -> tuple[Path, list[Gate]]:
    """Write the reference of a task from draws that one has, (C, T, D) or (n, D); the certificate's path and its gates.

    It is marked as not certified where a gate fails. Draws of unknown order count as one chain; copies count once; ``run``
    is what else the certificate records of the run that made them. ``InputError`` for draws of another dimension, or fewer
    than 1,000.
    """
    copies, chains, once = _time_major(task, draws, _FEWEST_DRAWS)
    found = diagnostics(chains)
    found |= {kind: found[kind] * once.double().mean().item() for kind in ("ess_bulk", "ess_tail")}
    gates = mixing_gates(task, found)
    if density_of(task) is not None:
        gates += density_gates(task, chains)
    record = {
        "method": "draws that were given",
        "run": {**(run or {}), **({"copies": copies.said} if copies.said else {}), "main": summary(found)},
        "grade": grade_of(gates, found),
    }
    return _written(task, folder, _part(chains, once, copies.repeats), gates, record, notify), gates


def reference_of_draws(task: Task, draws: Tensor, n: int) -> tuple[Reference, str]:
    """A reference in memory, for samples worth n independent draws: floors at the two largest sizes there can be; its copies.

    The largest is n, or a fifth of the draws, so that no sample is left out without need; of correlated draws a tenth of
    what they are worth. ``InputError`` as of ``build_from_draws``, or for fewer than 400.
    """
    copies, chains, once = _time_major(task, draws, _FEWEST_ONCE)
    given, found = int(once.sum()), chain_diagnostics(chains.transpose(0, 1))
    worth = given if found is None else min(given, int(found["worth"] * given / once.numel()))
    correlated = worth < _INDEPENDENT * given
    # Neighbours on both sides of a split would make a floor too low: correlated draws are spaced until nearly independent.
    step = _step(chains)
    if correlated or serially_correlated(chains.transpose(0, 1).flatten(0, 1)):
        step = max(step, -(-2 * given // max(worth, 1)))
    y = chains[::step].transpose(0, 1)[once[::step].T]
    own = min(n, len(y) // _TIMES_ONCE, max(SIZES))
    sizes = sorted({size for size in SIZES if size < own} | ({own} if own >= min(SIZES) else set()))[-2:]
    g = Generator().manual_seed(SEED)
    large = len(y) - ROWS >= _TIMES * _POOL_ONCE * own
    held_out = len(y) - ROWS if large else _POOL_ONCE * own
    orders = (torch.randperm(len(y), generator=g) for _ in range(1 if large or not sizes else _SPLITS))
    parts = [_Part(thin(y[o[held_out:]], ROWS), y[o[held_out:]], y[o[:held_out]], copies.repeats) for o in orders]
    worth = worth if correlated else given
    head = {"exact": False, "certified": False, "made_for": sizes[-1:], "worth": worth, "given": given}
    return _calibrated(task, parts, head, silent, sizes), copies.said


def _time_major(task: Task, draws: Tensor, fewest: int) -> tuple[Copies, Tensor, Tensor]:
    """Copies among draws, the others as (T, C, D), and which of these count, (T, C).

    ``InputError`` where they are none of the task, or too few.
    """
    x = torch.as_tensor(draws, dtype=torch.float64)
    if x.dim() not in (2, 3) or x.shape[-1] != task.dim:
        raise InputError(
            f"{task.name} wants reference draws of shape (n, {task.dim}) or (chains, draws, {task.dim}), got {tuple(draws.shape)}"
        )
    if not bool(x.isfinite().all()):
        raise InputError("the reference draws hold NaN or infinity")
    copies, path, rows = counted(x)
    if len(rows) < fewest:
        said = f" ({copies.said})" if copies.said else ""
        raise InputError(f"{len(rows)} reference draws{said} are too few: {fewest:,} are needed, 20,000 are good")
    if path is None:
        return copies, rows[:, None], torch.ones(len(rows), 1, dtype=torch.bool)
    return copies, path.transpose(0, 1), torch.from_numpy(copies.counted.T.copy())


@dataclass(frozen=True)
class _Part:
    """Draws of a reference, (., D) each: no draw of the pool is among the others, so that a floor's sets are as samples are."""

    rows: Tensor  #: what metrics compare with
    moments: Tensor  #: the draws whose moments are the reference's; the rows are some of them
    pool: Tensor  #: draws of the floors' sets
    repeats: bool = False  #: True where rows repeated: nearest neighbours have no floors


def _part(draws: Tensor, once: Tensor | None = None, repeats: bool = False) -> _Part:
    """Rows and moments from the later times of (T, C, D), and the pool from the earlier; of draws that count, (T, C).

    Draws are independent of those at other ends of long chains; a gap of a tenth of the time lies between.
    """
    step = _step(draws)
    once = torch.ones(draws.shape[:2], dtype=torch.bool) if once is None else once
    draws, once = draws[::step], once[::step]
    times = len(draws)
    late, early = slice(times - times // 3, None), slice(times - times // 3 - times // 30)
    moments = draws[late][once[late]]
    return _Part(thin(moments, ROWS), moments, thin(draws[early][once[early]], POOL), repeats)


def _step(draws: Tensor) -> int:
    """The smallest step in time of (T, C, D) over which hardly any chain stands where it stood.

    Two draws in one place would be nearest neighbours at distance zero. Values that repeat at any distance in time, as
    counts do, are no standing still.
    """
    half = len(draws) // 2
    anyhow = 1.5 * float((draws[half:] == draws[: len(draws) - half]).all(-1).double().mean())
    for k in range(1, max(2, len(draws) // 20)):
        kept = draws[::k]
        if float((kept[1:] == kept[:-1]).all(-1).double().mean()) <= max(_REPEATED, anyhow):
            break
    return k


def _written(
    task: Task, folder: Path | None, part: _Part, gates: list[Gate], record: dict[str, Any], notify: Notify
) -> Path:
    row = registry.tasks().get(task.name)
    if folder is None and row is not None and row.built_in:
        raise InputError(f"{task.name} is a built-in task: name a folder of your own with --folder")
    conditions = [{"gate": g.name, "passed": g.passed, "found": g.found} for g in gates]
    named = {"coordinates": list(found)} if (found := getattr(task, "coordinates", ())) else {}
    record = {"exact": False, **record, "certified": all(gate.passed for gate in gates), "gates": conditions}
    head = {**identity(task), **named, **record, **origin(SEED)}
    reference = _calibrated(task, [part], head, notify)
    target = density_of(task)
    arrays = {"draws": reference.draws.to(_precision(part.rows)).numpy()}
    if target is not None:
        arrays["scores"] = target.score(reference.draws[None, : fingerprint_rows(task.dim)])[0].detach().numpy()
    place = (folder or OWN_REFERENCES).resolve()
    return write(place, task.name, reference.certificate, arrays, reference.floors)


def _calibrated(
    task: Task, parts: Sequence[_Part], head: dict[str, Any], notify: Notify, sizes: Sequence[int] | None = None
) -> Reference:
    """The reference of the first part, with floors of all parts together, and the constants of V-statistics."""
    references = [_uncalibrated(task, part, head) for part in parts]
    reference, pool = references[0], parts[0].pool
    certificate = reference.certificate
    g = Generator().manual_seed(SEED)

    def drawn(pool: Tensor, n: int) -> Tensor:
        return pool[torch.randperm(len(pool), generator=g)[:n]]

    if known := [metric for metric in V_STATISTICS if metric in task.metrics]:
        size = min(5000, len(pool) // 2)
        constants = v_constants(task, reference, (drawn(pool, size) for _ in range(10)), metrics=known)
        certificate["v_statistics"] = constants
    sizes = [n for n in SIZES if n * _TIMES <= len(pool)] if sizes is None else sizes
    pools = [(other, partial(drawn, part.pool)) for other, part in zip(references, parts, strict=True)]
    floors = _floors(task, pools, sizes, notify, NEAREST if parts[0].repeats else ())
    certificate["floors"] = floor_summaries(floors)
    certificate["without_floor"] = [name for name in verdict_metrics(task) if floors and name not in floors]
    return replace(reference, certificate=certificate, floors=floors)


def _uncalibrated(task: Task, part: _Part, head: Mapping[str, Any]) -> Reference:
    """A reference with moments and bandwidth, and no floors yet."""
    stored = part.rows.to(_precision(part.rows)).double()
    sd = part.moments.std(0)
    shown = [None] * task.dim if task.facts.infinite_moments else sd.tolist()
    certificate = {**head, "rows": len(stored), "mean": part.moments.mean(0).tolist(), "sd": shown}
    if task.standardised:
        matrices = {"covariance": torch.cov(part.moments.T), "correlation": torch.corrcoef(part.moments.T)}
        numbers = {name: float(f"{torch.linalg.cond(matrix):.3g}") for name, matrix in matrices.items()}
        certificate |= {"units": sd.tolist(), "condition_numbers": numbers}
    reference = Reference(stored, bool(head["exact"]), certificate)
    compared = reference.in_units(stored)
    certificate["bandwidth"] = median_distance(compared)
    certificate["self_similarity"] = self_similarity(compared, certificate["bandwidth"])
    return reference


def _precision(rows: Tensor) -> torch.dtype:
    """Single precision, unless rounding would move a coordinate visibly: far from the origin, or beyond its range."""
    moved = (rows.to(torch.float32).double() - rows).abs().amax(0)
    return torch.float32 if bool((moved <= _MOVED * rows.std(0)).all()) else torch.float64


def _floors(
    task: Task,
    pools: Sequence[tuple[Reference, Callable[[int], Tensor]]],
    sizes: Sequence[int],
    notify: Notify,
    without: Sequence[str],
) -> dict[str, dict[int, Any]]:
    """Floors of the metrics of the task's verdict, of references and sets in equal shares: metric -> size -> sorted values."""
    target = density_of(task)
    metrics = [metric for metric in verdict_metrics(task) if metric not in without]
    each = -(-max(_FEWEST, SETS_A_METRIC * len(metrics)) // len(pools))
    curve = _CURVE if "sliced_w2" in metrics and len(sizes) > 1 else ()
    plans = [*((n, metrics) for n in sizes), *((n, ["sliced_w2"]) for n in curve)]
    found: dict[tuple[str, int], list[float]] = {}

    def sets() -> Iterator[tuple[int, list[str], Context, Tensor]]:
        for reference, drawn in pools:
            context = Context(task, reference, target)
            for n, names in plans:
                yield from ((n, names, context, drawn(n)) for _ in range(each))

    def values(one: tuple[int, list[str], Context, Tensor]) -> tuple[int, dict[str, float]]:
        n, names, context, x = one
        return n, values_of(names, x, context)

    total = each * len(pools) * len(plans)
    for i, (n, by_metric) in enumerate(in_parallel(values, sets())):
        for name, value in by_metric.items():
            found.setdefault((name, n), []).append(value)
        if i % 20 == 0:
            notify("floors", i, total)
    floors: dict[str, dict[int, Any]] = {}
    for (name, n), numbers in found.items():
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
    copies, path, rows = counted(x)
    known = None if path is None else chain_diagnostics(path)
    n = len(rows) if known is None else min(len(rows), int(known["worth"] * copies.counted.mean()))
    reference, said_copies = reference_of_draws(task, torch.tensor(given.values), n)
    said += [f"of the reference {said_copies}"] if said_copies else []
    if (worth := reference.certificate["worth"]) < (total := reference.certificate["given"]):
        said.append(f"the {total:,} draws of the reference are correlated, worth {worth:,} independent ones")
    document = evaluate_samples(task, x, cost, metrics, reference, draws.names)
    return document | {"read": "; ".join(filter(None, [*said, document["read"]]))}


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
