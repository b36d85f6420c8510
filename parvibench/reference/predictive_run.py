"""Certified posterior predictions of a network regression.

The weights mix slowly and are not identified, since hidden units can be permuted; the regression function at
held-out points mixes well. HMC runs on every certified split, from the task's own start, and its convergence is
judged on those predictions. MALA checks the first split, from its own start: it has to agree on all means and
deviations. It takes three times as many evaluations per effective prediction and is held to a looser R-hat.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core.errors import ParVIBenchError
from parvibench.core.registry import load_task
from parvibench.core.streams import Streams, derive_seed
from parvibench.core.task import Task
from parvibench.harness.store.environment import ALLOCATOR
from parvibench.metrics.floors import Notify, silent
from parvibench.metrics.predictive import relative_errors

from . import certificates
from .long_run import Diagnostics, Plan, agreement, agrees, diagnostics, recorded, require_mixing, run_chains

SEED = 20261121
#: Replicates 0 to SPLITS - 1 are certified.
SPLITS = 5
#: Draws stored per split, and how many of them are fingerprinted.
STATES = 100
FINGERPRINT = 20
SIZES = (100, 500, 1000)
#: Simulated values behind a floor.
SETS = 1000
MAX_CHECK_RHAT = 1.02
_FLOORED = ("predictive_mean_error", "predictive_sd_error")
#: Steps of a network of some hundred weights and rows, in its own coordinates.
MAIN = Plan("hmc", {"step_size": 5e-5, "leapfrog_steps": 35, "jitter": 0.2}, 20, 150, 1000, 1)
#: lambda moves slowest: a warm-up of 2000 steps left MALA 0.16 sd off.
CHECK = Plan("mala", {"step_size": 2e-4}, 20, 20_000, 750, 40)


@dataclass(frozen=True)
class Run:
    """One finished run on one split."""

    f: Tensor  #: (draws, chains, T) the regression function at the test points, original units
    states: Tensor  #: (m, D) some of its draws
    record: dict[str, Any]  #: the run's entry in the certificate
    found: Diagnostics  #: diagnostics per test point


def build_predictions(
    task: Task, folder: Path, *, main: Plan = MAIN, check: Plan = CHECK, splits: int = SPLITS, notify: Notify = silent
) -> Path:
    """Build and write the certified predictions of a registered regression; the certificate's path.

    The plan ``main`` runs on every one of so many splits, the plan ``check`` on the first, for comparison;
    ``ParVIBenchError`` where the evidence falls short.
    """
    jobs = [(task.name, "check", 0, check), *((task.name, "main", r, main) for r in range(splits))]
    workers = min(len(jobs), os.cpu_count() or 1)
    for key, value in ALLOCATOR.items():
        os.environ.setdefault(key, value)  # read by the processes when they start: twice as fast
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        finished: list[Run] = []
        for run in pool.map(run_split, *zip(*jobs, strict=True)):
            notify("chains of the certified splits, runs", len(finished), len(jobs))
            finished.append(run)
    checked, *runs = finished
    compared = checked.record | agreement(runs[0].found, checked.found)
    record = {"main": [run.record for run in runs], "check": compared}
    require_agreement(task.name, record)
    floors = predictive_floors([run.f for run in runs])
    states = torch.stack([run.states for run in runs]).float()
    target = task.target(range(splits), "cpu", torch.float64)
    certificate = {
        **certificates.identity(task),
        "kind": "predictions",
        "method": "long runs of parallel chains; convergence is judged on the predictions",
        **certificates.origin(SEED),
        "splits": splits,
        "run": record,
        **{k: [[float(f"{v:.4g}") for v in run.found[k]] for run in runs] for k in ("mcse_mean", "mcse_sd")},
        "floors": certificates.floor_summaries(floors),
    }
    arrays = {
        "mean": torch.stack([run.f.mean((0, 1)) for run in runs]).numpy(),
        "sd": torch.stack([run.f.flatten(0, 1).std(0) for run in runs]).numpy(),
        "states": states.numpy(),
        "scores": target.score(states[:, :FINGERPRINT].double()).float().numpy(),
    }
    return certificates.write(folder, task.name, certificate, arrays, floors)


def run_split(name: str, role: str, replicate: int, plan: Plan) -> Run:
    """Run a plan on the posterior of one replicate's split, from the task's own start."""
    torch.set_num_threads(1)
    task = load_task(name)
    clock = time.perf_counter()
    target = task.target([replicate], "cpu", torch.float64)
    predictive = task.predictive([replicate], "cpu", torch.float64)
    assert predictive is not None
    seed = derive_seed(SEED, name, role, replicate)
    start = task.initial(target, plan.chains, Streams(seed, (replicate,)).generators("init"))
    points = predictive.y.shape[1]

    def record_values(x: Tensor) -> Tensor:
        means, noise = predictive.predict(x[None])
        return torch.cat([means[0], noise[0, :, None].log(), x], dim=1)

    kept, accepted = run_chains(target, plan, seed, start[0].double(), record_values)
    f, log_noise, x = kept[..., :points], kept[..., points, None], kept[..., points + 1 :]
    found = diagnostics(f.contiguous())
    record = {"replicate": replicate} | recorded(plan, accepted, found, time.perf_counter() - clock)
    noise = diagnostics(log_noise.contiguous())
    record["log_noise"] = {key: float(f"{noise[key][0]:.5g}") for key in ("mean", "sd", "ess_bulk", "rhat")}
    times = torch.linspace(0, len(x) - 1, max(1, STATES // plan.chains)).long()
    return Run(f, x[times].flatten(0, 1)[:STATES], record, found)


def require_agreement(name: str, record: dict[str, Any]) -> None:
    """``ParVIBenchError`` for runs that have not converged or that the check run contradicts."""
    require_mixing(name, record["main"])
    check = record["check"]
    if not agrees(check) or check["rhat_max"] >= MAX_CHECK_RHAT:
        raise ParVIBenchError(f"{name}: the check run disagrees with the main run: {check}")


def predictive_floors(runs: Sequence[Tensor]) -> dict[str, dict[int, NDArray[np.float64]]]:
    """Errors of n independent draws: rows of a run picked at random, against the run with its chains resampled.

    Resampling the chains gives the reference its own sampling error. ``runs`` holds (draws, chains, T) per split.
    """
    generator = Generator().manual_seed(SEED)
    found: dict[str, dict[int, list[float]]] = {name: {n: [] for n in SIZES} for name in _FLOORED}
    centred = [f - f.mean((0, 1)) for f in runs]
    per_chain = [(f.mean(0), f.square().mean(0)) for f in centred]
    for i in range(SETS):
        f, (means, squares) = centred[i % len(runs)], per_chain[i % len(runs)]
        draws, chains, points = f.shape
        chosen = torch.randint(chains, (chains,), generator=generator)
        mean = means[chosen].mean(0)
        sd = (squares[chosen].mean(0) - mean.square()).sqrt()
        for n in SIZES:
            rows = f.view(-1, points)[torch.randint(draws * chains, (n,), generator=generator)]
            errors = relative_errors(rows.mean(0), rows.std(0), mean, sd)
            for name, value in zip(_FLOORED, errors, strict=True):
                found[name][n].append(float(value))
    return {name: {n: np.sort(values) for n, values in table.items()} for name, table in found.items()}
