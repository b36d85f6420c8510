"""Build the reference of a task: ``parvibench reference build``.

Writes ``<task>.npz`` (10,000 draws, fewer above 31 dimensions, and the values behind the noise floors, float32) and
``<task>.json``, the certificate: origin of the draws, moments, bandwidth, quantiles of the floors, and for chains the
evidence of convergence. Floors are those of the task's verdict; ``complete_floors`` adds the other metrics'. Takes under a
minute in two dimensions with exact draws, some ten minutes with chains.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from parvibench.core.errors import InputError, ParVIBenchError
from parvibench.core.exact import ExactTask
from parvibench.core.metric import Context
from parvibench.core.reference import Reference, fingerprint_rows, load_reference, read_certified
from parvibench.core.streams import derive_seed
from parvibench.core.task import Task
from parvibench.metrics.compute import compute
from parvibench.metrics.equivalent import POOL_SIZE, POOLS, V_STATISTICS, v_constants
from parvibench.metrics.floors import (
    NEEDED,
    SETS,
    Notify,
    Sets,
    judged_metrics,
    missing_floors,
    p_value,
    silent,
    simulate_floors,
    verdict_metrics,
)  # fmt: skip
from parvibench.metrics.mmd import self_similarity
from parvibench.metrics.pairwise import median_distance, thin

from .certificates import floor_summaries, identity, origin, write
from .checks import ALPHA
from .long_run import LongRun, confirming_run, correlations, long_run, main_draws
from .predictive_run import build_predictions

#: Most draws shipped, and most bytes (float32): fewer draws in high dimension.
ROWS = 10_000
SHIPPED_BYTES = 1_250_000
SEED = 20241105
#: Draws of another method compared with the reference.
COMPARED = 1000
#: Draws for the floors of numerical tasks: two hundred sets of the largest size.
NUMERICAL_DRAWS = 800_000
#: Draws for the recorded moments of a task with an exact sampler and unknown moments.
MOMENT_DRAWS = 1_000_000


@dataclass(frozen=True)
class Source:
    """Reference draws with their origin."""

    exact: bool  #: independent exact draws, or a certified run
    rows: Tensor  #: (m, D) float64, to be shipped
    sets: Sets  #: further sets of independent draws, disjoint from the rows, for the floors
    mean: Tensor  #: best known mean of the target, (D,)
    sd: Tensor  #: best known standard deviation, (D,)
    record: dict[str, Any]  #: method and evidence for the certificate
    check: Tensor | None = None  #: draws of another method, (n, D), to be compared with the rows


def build(task: Task, folder: Path | None = None, notify: Notify = silent) -> Path:
    """Build and write the reference of a task; the certificate's path.

    The task has an exact sampler, or a density that HMC can sample; of a regression the predictions are certified. The
    default folder is that of the package's own references.
    """
    folder = folder or default_folder()
    if "predictive" in task.provides:
        return build_predictions(task, folder, notify=notify)
    source = exact_source(task, notify) if "exact" in task.provides else run_source(task, notify)
    stored = source.rows.to(torch.float32)
    certificate = {
        **identity(task),
        "exact": source.exact,
        **source.record,
        **origin(SEED),
        "rows": len(stored),
        "mean": source.mean.tolist(),
        "sd": [sd if math.isfinite(sd) else None for sd in source.sd.tolist()],
        "bandwidth": median_distance(stored.double()),
    }
    reference = calibrated(task, Reference(stored.double(), source.exact, certificate), source.sets, notify)
    if source.check is not None:
        reference.certificate["run"] |= between_methods(task, reference, source.check)
    target = task.target([0], "cpu", torch.float64)
    scores = target.score(reference.draws[None, : fingerprint_rows(task.dim)])[0].numpy()
    arrays = {"draws": stored.numpy(), "scores": scores}
    return write(folder, task.name, reference.certificate, arrays, reference.floors)


def calibrated(task: Task, reference: Reference, sets: Sets, notify: Notify = silent) -> Reference:
    """The reference with the floors of the task's verdict, the kernel mean that ``mmd2`` needs, and constants of V-statistics.

    Its certificate holds moments and bandwidth; ``sets`` are independent exact draws, none of them in the reference.
    """
    known = {"self_similarity": self_similarity(reference.draws, reference.bandwidth)}
    reference = replace(reference, certificate=reference.certificate | known)
    metrics = list(dict.fromkeys((*NEEDED, *verdict_metrics(task))))
    constants = equivalence_constants(task, reference, sets, metrics, notify)
    floors = simulate_floors(task, reference, sets, metrics, notify)
    summary = {"v_statistics": constants, "floors": floor_summaries(floors)}
    return replace(reference, certificate=reference.certificate | summary, floors=floors)


def equivalence_constants(
    task: Task, reference: Reference, sets: Sets, metrics: Sequence[str], notify: Notify
) -> dict[str, dict[str, float]]:
    """Gap and bias of the V-statistics among the metrics; those in the certificate stay."""
    known: dict[str, dict[str, float]] = reference.certificate.get("v_statistics", {})
    missing = [metric for metric in V_STATISTICS if metric in metrics and metric not in known]

    def pools() -> Iterator[Tensor]:
        for number, pool in enumerate(islice(sets(POOL_SIZE), POOLS)):
            notify("expected values for equivalent sample sizes", number, POOLS)
            yield pool

    return known | (v_constants(task, reference, pools(), missing) if missing else {})


def complete_floors(
    task: Task, folder: Path | None = None, metrics: Sequence[str] | None = None, notify: Notify = silent
) -> Path | None:
    """Simulate what the floors of a task's reference lack, and write them beside its draws, which stay.

    By default of all metrics that have floors, in the package's own references. The certificate's path; None where nothing
    was missing; ``InputError`` for a task without a reference of draws.
    """
    folder = folder or default_folder()
    found = read_certified(task.name, "draws", folder)
    reference = load_reference(task.name, folder)
    if found is None or reference is None:
        raise InputError(f"{task.name} has no reference draws whose floors could be completed")
    metrics = metrics or judged_metrics()
    if "gates" in found[0] and "exact" not in task.provides:
        raise InputError(f"{task.name}: the chains behind its floors are not stored; build its reference again")
    if not missing_floors(task, reference, metrics):
        return None
    sets = exact_sets(task) if "exact" in task.provides else _earlier(main_draws(task, SEED, notify))
    floors = simulate_floors(task, reference, sets, metrics, notify)
    certificate, arrays, _ = found
    constants = equivalence_constants(task, reference, sets, list(floors), notify)
    summary = {"v_statistics": constants, "floors": floor_summaries(floors)}
    return write(folder, task.name, certificate | summary, arrays, floors)


def between_methods(task: Task, reference: Reference, check: Tensor) -> dict[str, Any]:
    """Distances of another method's draws (n, D) to the reference; ``ParVIBenchError`` where they leave its floor."""
    n = max(size for size in reference.floors["mmd2"] if size <= COMPARED)  # the other has no more draws
    found: dict[str, dict[str, float]] = {}
    for metric, value in compute(("sliced_w2", "mmd2"), thin(check, n)[None], Context(task, reference))[0].items():
        floor = reference.floor(metric, n)
        assert floor is not None  # a stored size
        p = p_value(metric, value.numpy(), floor)
        found[metric] = {"value": float(f"{float(value):.4g}"), "p_value": float(f"{p:.3g}")}
    if found["mmd2"]["p_value"] <= ALPHA:
        raise ParVIBenchError(f"{task.name}: the check run is not inside the floor of mmd2: {found}")
    return {"distances": {"check": found}}


def exact_source(task: Task, notify: Notify = silent) -> Source:
    """Exact draws with a fixed seed; moments from the task's facts, or from a million further draws.

    Draws that rest on numerical integration are confirmed by chains.
    """
    numerical = isinstance(task, ExactTask) and task.numerical
    sets = exact_sets(task)
    mean, sd = task.facts.mean, task.facts.sd
    if mean is not None and task.facts.infinite_moments:
        sd = torch.full_like(mean, math.inf)
    method = "exact sampler; exact moments"
    if mean is None or sd is None:
        x = task.exact(MOMENT_DRAWS, generator(task, "moments"))
        mean, sd, method = x.mean(0), x.std(0), f"exact sampler; moments of {MOMENT_DRAWS} draws"
    record: dict[str, Any] = {"method": method}
    check = None
    if numerical:
        run = confirming_run(task, SEED, notify)
        record, check = record | {"run": run.record}, compared(run)
    return Source(True, task.exact(shipped_rows(task.dim), generator(task, "rows")), sets, mean, sd, record, check)


def generator(task: Task, purpose: str) -> Generator:
    """The generator of a task's draws for one purpose."""
    return Generator().manual_seed(derive_seed(SEED, task.name, purpose))


def exact_sets(task: Task) -> Sets:
    """Sets of exact draws for the floors of a task with an exact sampler."""
    if isinstance(task, ExactTask) and task.numerical:  # one draw takes as long as all its metrics
        g = generator(task, "floor")
        return slices(torch.cat([task.exact(POOL_SIZE, g) for _ in range(NUMERICAL_DRAWS // POOL_SIZE)]))

    def fresh(n: int) -> Iterator[Tensor]:
        g = generator(task, f"floor-{n}")
        return (task.exact(n, g) for _ in range(SETS))

    return fresh


def compared(run: LongRun) -> Tensor:
    """Draws of the check run for the comparison: a few times of every chain, (n, D)."""
    return thin(run.check, -(-COMPARED // run.check.shape[1])).flatten(0, 1)


def shipped_rows(dim: int) -> int:
    """Number of draws shipped at this dimension."""
    return min(ROWS, SHIPPED_BYTES // (4 * dim))


def run_source(task: Task, notify: Notify = silent) -> Source:
    """Draws of the long run: the last ones of every chain are shipped, the earlier ones give the floors."""
    run = long_run(task, SEED, notify)
    draws, chains, dim = run.draws.shape
    rows = run.draws[draws - shipped_rows(dim) // chains :].reshape(-1, dim)
    every = run.draws.reshape(-1, dim)
    record = {
        "method": "long run of parallel chains; moments of all draws",
        "run": run.record | {"correlations": correlations(run.draws)},
    }
    return Source(False, rows, _earlier(run.draws), every.mean(0), every.std(0), record, compared(run))


def _earlier(draws: Tensor) -> Sets:
    """Sets of those draws of a main run that are not shipped.

    Time-major: neighbouring rows are of different chains, hence independent.
    """
    times, chains, dim = draws.shape
    return slices(draws[: times - shipped_rows(dim) // chains].reshape(-1, dim))


def slices(pool: Tensor) -> Sets:
    """Disjoint sets of n rows of (m, D), at most ``SETS`` of them."""
    return lambda n: (pool[i * n : (i + 1) * n] for i in range(min(SETS, len(pool) // n)))


def default_folder() -> Path:
    """Folder of the references that the package ships."""
    return Path(str(files("parvibench.tasks"))) / "references"
