"""Samples from elsewhere as a row of a leaderboard: of kind ``external``, at a cost that their maker states."""

import contextlib
import hashlib
from collections.abc import Mapping

import numpy as np
import pandas as pd
from torch import Tensor

from parvibench.core.budget import Budget
from parvibench.core.errors import InputError, StoreError
from parvibench.core.metric import Cost
from parvibench.core.result import CellRecord, CellSpec, Status, to_json_number
from parvibench.core.task import Task
from parvibench.metrics.common import thin

from .run.chunks import ChunkResult
from .run.judging import Judge
from .session import now
from .store.environment import provenance
from .store.store import CURVE_COLUMNS, RunCell, RunRecord, Store, new_run_id

KIND = "external"
#: Shown next to the row.
FLAG = "samples from elsewhere: their cost is self-reported, the meter did not see it"
COSTS = ("score_evaluations", "seconds")  #: What a cost may be stated in.
_MOST = 1000  #: Most samples of a row whose run gives no number.


def costs_of(stated: Mapping[str, float]) -> Cost:
    """The cost as stated; ``InputError`` for an unknown or missing one, or a number that is not positive."""
    unknown = [key for key in stated if key not in COSTS]
    if unknown or "score_evaluations" not in stated:
        wrong = f"{unknown[0]!r} is not one" if unknown else "score_evaluations is missing"
        raise InputError(f"--cost takes score_evaluations=N and, if you like, seconds=S: {wrong}")
    for key, value in stated.items():
        if not 0 < value < float("inf"):
            raise InputError(f"--cost {key}={value:g}: a positive number")
    return Cost(0, stated["score_evaluations"], stated.get("seconds", 0.0))


def store_external(store: Store, task: Task, samples: Tensor, label: str, cost: Cost, command: str = "") -> RunRecord:
    """Measure finite samples (n, D), or chains (C, T, D), thinned to as many as others', as a row of the task's latest run."""
    before: RunRecord | None = None
    with contextlib.suppress(StoreError):  # no run
        latest = store.run()
        before = latest if any(c.task == task.name for c in latest.cells) else None
    others = [] if before is None else [c for c in before.cells if not (c.task == task.name and c.label == label)]
    judged = [c.samples for c in others if c.task == task.name]
    path = samples.transpose(0, 1)[None].double() if samples.dim() == 3 else None
    x = thin(samples.reshape(-1, samples.shape[-1]), min(judged) if judged else _MOST)
    record, curve = _measured(task, x, label, cost, path)
    suite = {"name": KIND, "tasks": [{"name": task.name}], "algorithms": []} if before is None else before.suite
    facts, cells = provenance(command, "cpu", [task.name]), [*others, RunCell(spec=record.spec, label=label)]
    run_id, profile = new_run_id(str(suite["name"])), None if before is None else before.profile
    run = RunRecord(
        id=run_id, suite=suite, profile=profile, cells=cells, provenance=facts, started=now(), finished=now()
    )
    with store.locked():
        store.write_cell(record, curve, x.numpy().astype(np.float32)[None])
        run = store.last(run)
        store.write_run(run)
    return run


def _measured(task: Task, x: Tensor, label: str, cost: Cost, path: Tensor | None) -> tuple[CellRecord, pd.DataFrame]:
    """Record and curve of the samples (n, D), with the path (1, T, C, D) of chains."""
    result = ChunkResult()
    Judge(task, task.metrics, (0,)).add(result, x[None], cost, last=True, path=path)
    unknown = {"peak_memory"} | (set() if cost.seconds else {"seconds"})
    values = {m: [to_json_number(v) for v in found] for m, found in result.values.items() if m not in unknown}
    spec = CellSpec(
        task=task.name,
        task_version=task.version,
        algorithm=f"{KIND}-{hashlib.sha256(label.encode()).hexdigest()[:8]}",
        source=hashlib.sha256(x.numpy().tobytes()).hexdigest(),
        budget=Budget(score_evaluations=cost.score_evaluations),
        algorithm_version=1, settings={}, particles=len(x), samples=len(x), burn_in=0.0, thinning=1, replicates=(0,), seed=0,
        chunk=1, device="cpu", dtype="float32",
    )  # fmt: skip
    record = CellRecord(
        spec=spec, label=label, kind=KIND, status=Status.OK, flags=[FLAG], created=now(),
        score_evaluations=cost.score_evaluations, seconds=cost.seconds, values=values,
        judged={m: [to_json_number(v) for v in found] for m, found in result.judged.items()},
        absent=result.absent | dict.fromkeys(unknown & set(task.metrics), "not stated"),
    )  # fmt: skip
    curve = pd.DataFrame([row for row in result.curve if row[5] not in unknown], columns=list(CURVE_COLUMNS))
    return record, curve
