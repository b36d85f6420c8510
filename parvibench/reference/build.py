"""References of tasks: ``parvibench reference build``, from exact draws, from chains or from draws that exist.

Writes ``<task>.npz`` (rows and noise floors) and ``<task>.json``, the certificate: origin of the draws, moments, bandwidth,
quantiles of the floors and the evidence. A reference has 5,000 rows and floors of the metrics of the task's verdict. Rows and
moments are of the later times of the chains; sets for the floors are drawn from the earlier ones. These are stored, too, as
``<task>.pool.npy``, and floors of further sample sizes are simulated when they are needed; references that the package ships
have all floors, and no pool.
"""

import datetime
import hashlib
import io
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core import OWN_REFERENCES, reference_folder, registry
from parvibench.core.errors import InputError, UnsupportedError
from parvibench.core.metric import Context
from parvibench.core.reference import Reference, fingerprint_rows, load_reference, read_certified
from parvibench.core.streams import derive_seed
from parvibench.core.task import Task
from parvibench.data.atomic import write_atomically
from parvibench.metrics.common import median_distance, thin
from parvibench.metrics.compute import values_of
from parvibench.metrics.copies import Copies
from parvibench.metrics.equivalent import V_STATISTICS, v_constants
from parvibench.metrics.evaluate import counted
from parvibench.metrics.floors import Notify, density_of, judged_metrics, rounded, verdict_metrics
from parvibench.metrics.mmd import self_similarity
from parvibench.metrics.own_floors import SEED, Plan, drawn_from, forecast, plan_of, pooled_floors, sizes_of

from .chain_runs import chains_of, trial
from .gates import Effort, Gate, density_gates, diagnostics, grade_of, mixing_gates, refusal, summary

#: Rows of a reference, and draws of the pool that floors come from.
ROWS, POOL = 5000, 100_000
#: Fewest draws of a reference on disk.
_FEWEST_DRAWS = 1000
#: Largest sample size with floors of metrics outside a task's verdict.
_MOST_OUTSIDE = 1000
#: Largest share of chains that have not moved between two times.
_REPEATED = 1e-4
#: How far single precision may move a draw, in standard deviations: a fifth of what counts as a copy.
_MOVED = 1e-6


def default_folder() -> Path:
    """Folder of the references that the package ships."""
    return Path(str(reference_folder()))


def built_in(task: Task) -> bool:
    """Whether the package ships the task."""
    row = registry.tasks().get(task.name)
    return row is not None and row.built_in


def build(
    task: Task, folder: Path | None, effort: Effort, notify: Notify, *, uncertified: bool = False, samples: int = 0
) -> tuple[Path, list[Gate]]:
    """Run chains (or draw exactly), certify them, and write the reference; the certificate's path and its gates.

    ``samples`` is the sample size whose floors are built at once, by default the number of the task's particles.

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
        seconds = _forecast(task, effort, samples)
        time = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
        notify(f"about {time} in all, by a trial of a few steps", 0, 1)
        main, gates, run = chains_of(task, effort, notify)
        if uncertified or all(gate.passed for gate in gates):
            gates += density_gates(task, main)
        part, record = _part(main), {"method": f"chains by {effort.method}", "run": run}
    if not uncertified and not all(gate.passed for gate in gates):
        raise refusal(task.name, gates)
    return _written(task, folder, part, gates, record, notify, samples), gates


def _forecast(task: Task, effort: Effort, samples: int) -> float:
    """Seconds of the runs and of the floors, the rows being those of a trial, scattered."""
    draws, seconds = trial(task, effort)
    x = draws.flatten(0, 1)
    times, g = -(-3 * ROWS // len(x)), Generator().manual_seed(SEED)
    x = x.repeat(times, 1)
    x += 0.1 * x.std(0) * torch.randn(x.shape, generator=g, dtype=torch.float64)
    reference = _uncalibrated(task, _part(x[:, None]), {"exact": False})
    plan = _plan(task, min(POOL, effort.chains * effort.draws * 3 // 5), samples)
    return seconds + forecast(task, reference, plan, x)


def build_from_draws(
    task: Task,
    folder: Path | None,
    draws: Tensor,
    notify: Notify,
    run: Mapping[str, Any] | None = None,
    samples: int = 0,
) -> tuple[Path, list[Gate]]:
    """Write the reference of a task from draws that one has, (C, T, D) or (n, D); the certificate's path and its gates.

    It is marked as not certified where a gate fails. Draws of unknown order count as one chain; copies count once; ``run``
    is what else the certificate records of the run that made them; ``samples`` as of ``build``. ``InputError`` for draws of
    another dimension, or fewer than 1,000.
    """
    copies, chains, once = time_major(task, draws, _FEWEST_DRAWS)
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
    return _written(task, folder, _part(chains, once, copies.repeats), gates, record, notify, samples), gates


def time_major(task: Task, draws: Tensor, fewest: int) -> tuple[Copies, Tensor, Tensor]:
    """Copies among draws, the others as (T, C, D), and which of these count, (T, C); ``InputError`` for too few, or others."""
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
class Part:
    """Draws of a reference, (., D) each: no draw of the pool is among the others, so that a floor's sets are as samples are."""

    rows: Tensor  #: what metrics compare with
    moments: Tensor  #: the draws whose moments are the reference's; the rows are some of them
    pool: Tensor  #: draws of the floors' sets
    repeats: bool = False  #: True where rows repeated: nearest neighbours have no floors


def _part(draws: Tensor, once: Tensor | None = None, repeats: bool = False) -> Part:
    """Rows and moments from the later times of (T, C, D), after a gap of a tenth the pool; of draws that count ``once``."""
    step = step_between(draws)
    once = torch.ones(draws.shape[:2], dtype=torch.bool) if once is None else once
    draws, once = draws[::step], once[::step]
    times = len(draws)
    late, early = slice(times - times // 3, None), slice(times - times // 3 - times // 30)
    moments = draws[late][once[late]]
    return Part(thin(moments, ROWS), moments, thin(draws[early][once[early]], POOL), repeats)


def step_between(draws: Tensor) -> int:
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


def _plan(task: Task, pool: int, samples: int, repeats: bool = False) -> Plan:
    """Floors that are built at once: at all sizes for a built-in task, else at ``samples``."""
    sizes = sizes_of(pool)
    near = [n for n in sizes if n <= (samples or task.particles)][-1:]
    return plan_of(task, sizes if built_in(task) else near, sizes, repeats)


def _written(
    task: Task, folder: Path | None, part: Part, gates: list[Gate], record: dict[str, Any], notify: Notify, samples: int
) -> Path:
    """Write a reference; the certificate's path."""
    place = (folder or (default_folder() if built_in(task) else OWN_REFERENCES)).resolve()
    conditions = [{"gate": g.name, "passed": g.passed, "found": g.found} for g in gates]
    named = {"coordinates": list(found)} if (found := getattr(task, "coordinates", ())) else {}
    record = {"exact": False, **record, "certified": all(gate.passed for gate in gates), "gates": conditions}
    head = {**identity(task), **named, **record, **origin(SEED)}
    part = replace(part, pool=part.pool.to(_precision(part.pool)))
    np.save(pool := io.BytesIO(), part.pool.numpy())
    if not built_in(task):
        sha = hashlib.sha256(pool.getvalue()).hexdigest()
        head["pool"] = {"sha256": sha, "sizes": sizes_of(len(part.pool)), "repeats": part.repeats}
    part = replace(part, pool=part.pool.double())
    plan = _plan(task, len(part.pool), samples, part.repeats)
    reference = calibrated(task, [part], plan, head, notify, apart=True)
    target = density_of(task)
    arrays = {"draws": reference.draws.to(_precision(part.rows)).numpy()}
    if target is not None:
        arrays["scores"] = target.score(reference.draws[None, : fingerprint_rows(task.dim)])[0].detach().numpy()
    kept = None if built_in(task) else pool.getvalue()
    return write(place, task.name, reference.certificate, arrays, reference.floors, kept)


def calibrated(
    task: Task, parts: Sequence[Part], plan: Plan, head: dict[str, Any], notify: Notify, *, apart: bool = False
) -> Reference:
    """The first part's reference, with floors of all parts, by a generator for each size if ``apart``, and constants."""
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
    draws = [drawn_from(part.pool, task.name) if apart else partial(drawn, part.pool) for part in parts]
    pools = list(zip(references, draws, strict=True))
    floors = pooled_floors(task, pools, plan, repeats=parts[0].repeats, notify=notify)
    certificate["floors"] = floor_summaries(floors)
    certificate["without_floor"] = [name for name in verdict_metrics(task) if floors and name not in floors]
    return replace(reference, certificate=certificate, floors=floors)


def add_floors(task: Task, folder: Path | None, metrics: Sequence[str] | None, notify: Notify) -> Path | None:
    """Simulate floors of metrics that a shipped reference lacks, by default of all, and write them beside its draws.

    They are those of fresh exact draws. The certificate's path; None where nothing was missing; ``InputError`` for a task
    without a reference of draws, or without an exact sampler.
    """
    folder = folder or default_folder()
    found, reference = read_certified(task.name, "draws", folder), load_reference(task.name, folder)
    if found is None or reference is None:
        raise InputError(f"{task.name} has no reference draws whose floors could be completed")
    if "exact" not in task.provides:
        raise InputError(f"{task.name}: the chains behind its floors are not stored; build its reference again")
    lacking = [metric for metric in metrics or judged_metrics() if metric not in reference.floors]
    lacking = list(values_of(lacking, reference.draws[:50], Context(task, reference, density_of(task))))  # that apply
    if not lacking:
        return None
    pool = task.exact(POOL, Generator().manual_seed(derive_seed(SEED, task.name, "floors")))
    drawn, judging = drawn_from(pool, task.name), verdict_metrics(task)
    plan = [(n, [m for m in lacking if n <= _MOST_OUTSIDE or m in judging]) for n in sizes_of(len(pool))]
    floors = {**reference.floors, **pooled_floors(task, [(reference, drawn)], plan, notify=notify)}
    known = [metric for metric in V_STATISTICS if metric in lacking]
    constants = v_constants(task, reference, (drawn(5000) for _ in range(10)), metrics=known) if known else {}
    summary = {"v_statistics": found[0].get("v_statistics", {}) | constants, "floors": floor_summaries(floors)}
    return write(folder, task.name, found[0] | summary, found[1], floors)


def _uncalibrated(task: Task, part: Part, head: Mapping[str, Any]) -> Reference:
    """A reference with moments and bandwidth, and no floors yet."""
    stored = part.rows.to(_precision(part.rows)).double()
    known = task.facts
    mean = part.moments.mean(0) if known.mean is None else known.mean
    sd = part.moments.std(0) if known.sd is None else known.sd
    shown = [None] * task.dim if known.infinite_moments else sd.tolist()
    certificate = {**head, "rows": len(stored), "mean": mean.tolist(), "sd": shown}
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


FORMAT = 2


def identity(task: Task) -> dict[str, Any]:
    """Format, task and version of a certificate."""
    return {"format": FORMAT, "task": task.name, "task_version": task.version}


def origin(seed: int) -> dict[str, Any]:
    """Seed, date and versions of a certificate."""
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    created = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"seed": seed, "created": created, "versions": versions}


def floor_summaries(floors: Mapping[str, Mapping[int, NDArray[np.float64]]]) -> dict[str, Any]:
    """Number of values and quantiles of each floor; the values themselves are in the arrays."""

    def summary(values: NDArray[np.float64]) -> dict[str, float]:
        quantiles = {f"q{100 * q:02.0f}": float(f"{np.quantile(values, q):.4g}") for q in (0.05, 0.5, 0.95)}
        return {"sets": len(values), **quantiles}

    return {m: {n: summary(values) for n, values in table.items()} for m, table in floors.items()}


def write(
    folder: Path,
    name: str,
    certificate: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    floors: Mapping[str, Mapping[int, NDArray[np.float64]]],
    pool: bytes | None = None,
) -> Path:
    """Write ``<name>.npz``, floors in float32, ``<name>.pool.npy`` for later ones, and ``<name>.json`` with its hash: its path."""
    folder.mkdir(parents=True, exist_ok=True)
    # What a process that was killed left, and the floors that were added to an earlier reference.
    for left in (*folder.glob(f".new-{name}.*"), *folder.glob(f"{name}.floors-*.npz")):
        left.unlink(missing_ok=True)
    arrays_file, certificate_file = folder / f"{name}.npz", folder / f"{name}.json"
    stored: dict[str, Any] = dict(arrays)
    stored |= {f"{m}/{n}": rounded(v) for m, table in floors.items() for n, v in table.items()}
    np.savez_compressed(buffer := io.BytesIO(), **stored)
    signed = {**certificate, "sha256": hashlib.sha256(content := buffer.getvalue()).hexdigest()}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in signed.items()]  # one per key
    if pool is not None:
        write_atomically(folder / f"{name}.pool.npy", pool)
    write_atomically(arrays_file, content)
    write_atomically(certificate_file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return certificate_file
