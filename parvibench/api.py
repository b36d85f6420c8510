"""The Python API: ``run`` and ``evaluate``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parvibench.harness.run.compiling import require_compiler
from parvibench.harness.store.merging import shard
from parvibench.harness.store.results import Results
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite, load_suite
from parvibench.tracking.observer import MirrorObserver

from .core import registry
from .core.algorithm import Algorithm
from .core.errors import InputError
from .core.task import Task
from .harness.session import Observer, make_executor, resolve_device, run_cells
from .metrics.evaluate import evaluate_samples

DEFAULT_STORE = Path("parvibench-runs")
DEFAULT_TIMEOUT_S = 1800.0
DEFAULT_BUDGET = {"scores_per_particle": 500.0}


def run(
    suite: str | Suite | None = None,
    *,
    tasks: Sequence[str | Task] = (),
    algorithms: Sequence[str | Algorithm | type[Algorithm]] = (),
    replicates: int | None = None,
    seed: int | None = None,
    budget: Mapping[str, float] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    profile: str | None = None,
    match: str | None = None,
    part: tuple[int, int] | None = None,
    workers: int | None = None,
    device: str = "auto",
    timeout: float = DEFAULT_TIMEOUT_S,
    memory: float | None = None,
    ray: str | None = None,
    gpus: float = 1.0,
    compiled: bool = False,
    out: Path | str = DEFAULT_STORE,
    fresh: bool = False,
    retry_failed: bool = False,
    tracking: bool | MirrorObserver = True,
    warn: Callable[[str], None] = warnings.warn,
    observers: Sequence[Observer] = (),
    command: str = "",
) -> Results:
    """Run a suite, a part of it, or tasks and algorithms of your own.

    Args:
        suite: name of a shipped suite, path of a suite file, or None to run ``tasks`` x ``algorithms``.
        tasks: names or objects; they select from the suite, or make one.
        algorithms: names, ``module:Class``, objects or classes; likewise.
        replicates: independent repetitions per cell.
        seed: root seed.
        budget: limits per replicate, e.g. ``{"score_evaluations": 200_000}``.
        settings: overrides per algorithm name or label, e.g. ``{"svgd": {"step_size": 0.05}}``.
        profile: of the suite.
        match: ``effective-step`` scales step sizes so that a task's methods move alike, see the README.
        part: (I, K) runs every K-th cell from the I-th on; ``parvibench.harness.store.merging.merge`` puts the parts together.
        workers: processes; 0 runs in this process; default one per CPU. Objects always run in this process.
        device: ``auto``, ``cpu`` or ``cuda``.
        timeout: wall-clock limit of one chunk of replicates, s.
        memory: limit of one worker with all it starts, MiB; default: all of them together 80% of the machine's.
        ray: run on a Ray cluster: ``local``, or its address.
        gpus: share of a GPU that a chunk on the cluster takes, with ``device="cuda"``.
        compiled: steps through ``torch.compile``: worth its time in long runs, see the README.
        out: the store.
        fresh: run again what the store holds.
        retry_failed: run again what failed.
        tracking: mirror the run to MLflow (``MLFLOW_TRACKING_URI``, else SQLite in the store); or a mirror of the
            caller's, who closes it.
        warn: told when the mirror could not be delivered.
        observers: told what happens.
        command: the command line, for provenance.

    Returns:
        The results, also of cells found in the store.

    Raises:
        InputError: unknown names, bad settings, a negative budget, no compiler; nothing has run then.
    """
    objects = [a() if isinstance(a, type) else a for a in (*tasks, *algorithms) if not isinstance(a, str)]
    chosen = select(
        suite,
        tasks=[_name(t) for t in tasks],
        algorithms=[_name(a) for a in algorithms],
        replicates=replicates,
        seed=seed,
        budget=budget,
        profile=profile,
        match=match,
    )
    where = resolve_device(device)
    if compiled:
        require_compiler(where)
    cells = expand(chosen, device=where, settings=settings, objects=objects, compiled=compiled)
    if part is not None:
        cells = shard(cells, *part)
    processes = (os.cpu_count() or 1) if workers is None else workers
    if ray is not None:
        if objects:
            raise InputError(
                "objects cannot be sent to a Ray cluster; name them as 'module:Class' or 'file.py:Class'"
            )
        processes = workers or 0
    executor = make_executor(0 if objects else processes, where, timeout, memory, ray, gpus)
    store = Store(out)
    store.check_writable()
    mirror = MirrorObserver(store.root) if tracking is True else tracking or None
    results = run_cells(
        cells,
        store,
        executor,
        suite=chosen.resolved(),
        profile=profile,
        command=command,
        observers=[*observers, *([mirror] if mirror else [])],
        fresh=fresh,
        retry_failed=retry_failed,
    )
    if tracking is True and mirror and (warning := mirror.close()):
        warn(warning)
    return results


def _name(item: Any) -> str:
    return item if isinstance(item, str) else str(item.name)


def select(
    suite: str | Suite | None,
    *,
    tasks: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    replicates: int | None = None,
    seed: int | None = None,
    budget: Mapping[str, float] | None = None,
    profile: str | None = None,
    match: str | None = None,
) -> Suite:
    """The suite to run after all selections and overrides.

    Raises:
        InputError: nothing to run, unknown names, values out of range.
    """
    if suite is None:
        if not tasks or not algorithms:
            raise InputError(
                "say what to run: a suite (--suite quick), or tasks and algorithms (--task, --algorithm)"
            )
        chosen = _build(
            {"name": "custom", "tasks": list(tasks), "algorithms": list(algorithms), "budget": DEFAULT_BUDGET}
        )
    else:
        chosen = (load_suite(suite) if isinstance(suite, str) else suite).with_profile(profile)
        chosen = _restrict(chosen, tasks, algorithms)
    overrides: dict[str, Any] = {}
    if replicates is not None:
        overrides["replicates"] = replicates
        overrides["tasks"] = [{"name": t.name} for t in chosen.tasks]
    if seed is not None:
        overrides["seed"] = seed
    if budget is not None:
        overrides["budget"] = dict(budget)
    if match is not None:
        overrides["match"] = match
    return _build({**chosen.model_dump(exclude_none=True), **overrides}) if overrides else chosen


def _build(values: dict[str, Any]) -> Suite:
    from pydantic import ValidationError

    try:
        return Suite.model_validate(values)
    except ValidationError as error:
        lines = [
            f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']} (given {e['input']!r:.80})"
            for e in error.errors()
        ]
        raise InputError("\n".join(lines)) from None


def _restrict(suite: Suite, tasks: Sequence[str], algorithms: Sequence[str]) -> Suite:
    """Keep the named tasks and algorithms; names the suite lacks are added to it."""
    own_tasks = {t.name: t for t in suite.tasks}
    own_methods = {a.display: a for a in suite.algorithms} | {a.name: a for a in suite.algorithms}
    values = suite.model_dump(exclude_none=True)
    if tasks:
        values["tasks"] = [own_tasks[t].model_dump(exclude_none=True) if t in own_tasks else t for t in tasks]
    if algorithms:
        values["algorithms"] = [
            own_methods[a].model_dump(exclude_none=True) if a in own_methods else a for a in algorithms
        ]
    return _build(values)


def evaluate(samples: Any, task: str | Task, metrics: Sequence[str] | None = None) -> dict[str, Any]:
    """Judge samples of a task against its reference.

    Args:
        samples: (n, d) array, tensor or data frame, or an ArviZ InferenceData / DataTree whose posterior
            variables together have d columns (chains and draws are stacked).
        task: name or object.
        metrics: names to judge by; default the task's.

    Returns:
        ``task``, ``n``, ``verdict`` and ``metrics``: value, floor, ratio, p-value, equivalent sample size and
        verdict of each (see the README).

    Raises:
        ShapeError: wrong shape, fewer than two rows, or non-finite entries.
        UnsupportedError: the task has no reference.
    """
    found = registry.load_task(task) if isinstance(task, str) else task
    return evaluate_samples(found, torch.tensor(_as_array(samples)), metrics=metrics)


def _as_array(samples: Any) -> np.ndarray:
    """(n, d) float64 from arrays, frames, tensors and InferenceData."""
    posterior = getattr(samples, "posterior", None)
    if posterior is not None:
        stacked = [
            np.asarray(v.values, dtype=np.float64).reshape(v.shape[0] * v.shape[1], -1)
            for v in posterior.data_vars.values()
        ]
        return np.concatenate(stacked, axis=1)
    if isinstance(samples, torch.Tensor):
        samples = samples.detach().cpu().numpy()
    return np.asarray(samples, dtype=np.float64)
