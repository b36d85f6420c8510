"""Stores made by hand: no sampler runs."""

import contextlib
import json

import numpy as np
import pandas as pd
import pytest
import records

from parvibench.core.result import to_json_number
from parvibench.harness.store.store import CURVE_COLUMNS, RunRecord, Store
from parvibench.reporting.facts import floor_comparison
from parvibench.reporting.facts.run import Facts

EVIL = '<script>alert("x")</script>'
REPLICATES = 7


ANCHORS = ("exact", "initial")
COMMON = {
    "budget": {"iterations": 400}, "particles": 100, "samples": 100, "replicates": tuple(range(REPLICATES)),
    "chunk": REPLICATES, "iterations": 400, "seconds": 0.7,
}  # fmt: skip


def make_record(key, task, algorithm, **changes):
    own = {"kind": "chains", "settings": {"step_size": 0.05}, "score_evaluations": 40_000.0}
    if algorithm in ANCHORS:
        own = {"kind": "anchor", "settings": {}, "score_evaluations": 0.0}
    return records.make_record(key, **{"task": task, "algorithm": algorithm, **COMMON, **own, **changes})


def make_curve(generator, metrics, scale, *, steps=5, lost=()):
    """Values that fall with the iterations; replicates in ``lost`` are not finite at the end."""
    rows = [
        (r, c, 4 * 10**c, 400.0 * 10**c, 0.01 * 10**c, m, value)
        for c in range(steps)
        for m in metrics
        for r, value in enumerate(scale * (0.218 + np.exp(-2 * c)) * generator.lognormal(0, 0.1, REPLICATES))
    ]
    curve = pd.DataFrame(rows, columns=list(CURVE_COLUMNS))
    last = (curve["checkpoint"] == steps - 1) & curve["replicate"].isin(lost)
    curve.loc[last, "value"] = np.inf
    return curve


def with_values(record, curve):
    """The record with the values of the curve's last checkpoint, as the harness would write them."""
    last = curve[curve["checkpoint"] == curve["checkpoint"].max()]
    values = {m: [to_json_number(v) for v in rows["value"]] for m, rows in last.groupby("metric")}
    return record.model_copy(update={"values": values})


def write_store(root, cells, suite=None):
    """A store and its run from (record, curve, samples)."""
    store = Store(root)
    for record, curve, samples in cells:
        store.write_cell(record, curve, samples)
    suite = {"name": "made", "description": "for tests"} | (suite or {})
    provenance = {"command": f"parvibench {EVIL}", "packages": {"torch": "2"}}
    asked, started = [records.asked(r) for r, *_ in cells], "2026-01-01T00:00:00+00:00"
    run = RunRecord(id="20260101-000000-000-made", suite=suite, cells=asked, provenance=provenance, started=started)
    store.write_run(run)
    return Facts.load(store)


def made_cells():
    """Two tasks, one of them of a plug-in that is not here; methods that work, fail, and fail in part."""
    generator = np.random.default_rng(1)
    cells = []
    for task, metrics in (("banana", ["sliced_w2", "ksd"]), ("plug/in", ["oddity"])):
        methods = {EVIL: 1.0, "ula": 0.5, "half": 0.8, "exact": 0.1, "initial": 3.0}
        for i, (label, scale) in enumerate(methods.items()):
            lost = range(4) if label == "half" else ()
            curve = make_curve(generator, metrics, scale, lost=lost)
            algorithm = label if label in ANCHORS else "svgd"
            kind = {"kind": "particles"} if label == EVIL else {}
            failed = {"n_diverged": len(lost), "diverged": dict.fromkeys(lost, 39_999)}
            absent = {} if label == "ula" else {"ess_bulk": "no <path>"}
            record = make_record(f"{task[:4]}{i}", task, algorithm, label=label, absent=absent, **kind, **failed)
            samples = generator.normal((0, 1), size=(REPLICATES, 100, 2))
            cells.append((with_values(record, curve), curve, samples))
        crashed = make_record(f"{task[:4]}c", task, "mala", status="crashed", reason=f"bad {EVIL}")
        unsupported = make_record(f"{task[:4]}u", task, "lapd", status="unsupported", reason="needs x")
        cells += [(crashed, None, None), (unsupported, None, None)]
    return cells


def stored_curves(store):
    """Curves of a store's only run, straight from the files: (task, label) -> final checkpoint, by replicate."""
    run = json.loads(next((store.root / "runs").glob("*.json")).read_text())
    found = {}
    for cell in run["cells"]:
        path = store.root / "cells" / cell["spec"]["key"] / "curve.parquet"
        if path.is_file():
            curve = pd.read_parquet(path)
            last = curve[curve["checkpoint"] == curve["checkpoint"].max()]
            found[cell["spec"]["task"], cell["label"]] = last.sort_values("replicate", kind="stable")
    return found


@contextlib.contextmanager
def only_reference(task, reference):
    """Reports know this one reference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(floor_comparison, "load_floored", lambda name: reference if name == task else None)
        patch.setattr(floor_comparison, "declared", lambda name: ("", ("sliced_w2", "ksd")))
        yield
