"""Toy records and stores, mirrored to SQLite and read again by a plain client."""

import json
from pathlib import Path

import numpy as np
import records

from parvibench.harness.store.store import RunRecord, Store
from parvibench.tracking.mirror import MirrorObserver

RUN = {
    "id": "20260101-000000-000-tiny",
    "suite": {"name": "tiny", "tasks": [{"name": "banana"}], "budget": {"iterations": 40}},
    "profile": None,
    "cells": [],
    "provenance": {
        "command": "parvibench run -a svgd", "cpus": 2, "packages": {"torch": "2"}, "git": "0123abc+",
        "data": {"reference of banana": "cafe" * 16},
    },
    "started": "2026-01-01T00:00:00+00:00",
}  # fmt: skip


def make_record(name, **changes):
    values = {
        "label": f"svgd ({name})", "settings": {"step_size": 0.05, "rule": None}, "effective_step": 0.05,
        "iterations": 40, "seconds": 1.5, "values": {"sliced_w2": [0.3, 0.1, 0.2]}, "metrics_key": "m1",
        "created": "2026-01-01T00:00:01+00:00",
    }  # fmt: skip
    return records.make_record(name, **values | changes)


def write_folder(root, record, curve=None):
    store = Store(root)
    store.write_cell(record, curve, None if curve is None else np.zeros((3, 8, 2)))
    return store.folder(record.key)


def make_curve():
    rows = [
        (r, c, 20 * (c + 1), 160.0 * (c + 1), 0.1 * (c + 1), "sliced_w2", value)
        for c, values in enumerate([(0.9, 0.5, 0.7), (0.3, 0.1, 0.2)])
        for r, value in enumerate(values)
    ]
    return records.make_curve(rows)


def make_store(root, run, *cells):
    """A store with its mirror in its folder."""
    store = Store(root)
    for record, curve in cells:
        samples = None if curve is None else np.arange(48, dtype=np.float32).reshape(3, 8, 2)
        store.write_cell(record, curve, samples)
    store.write_run(RunRecord.model_validate({**run, "cells": [records.asked(r) for r, _ in cells]}))
    return store


def mirror(root, *cells, run=RUN, uri=None):
    copy = MirrorObserver(root, uri)
    copy.started(RunRecord(**run))
    for record, curve in cells:
        copy.finished(None, record, write_folder(root, record, curve), cached=False)
    return copy.close()


class Mirrored:
    """A store, the warnings of mirroring it, and its experiment and runs as a plain client finds them."""

    def __init__(self, root, warnings):
        from mlflow import MlflowClient

        self.root, self.warnings, self.uri = root, warnings, f"sqlite:///{root}/mlflow.db"
        self.client = MlflowClient(tracking_uri=self.uri)
        self.experiment = self.client.get_experiment_by_name("parvibench/tiny")
        self.runs = {r.info.run_name: r for r in self.client.search_runs([self.experiment.experiment_id])}
        self.parent = self.runs["tiny, 2026-01-01 00:00"]

    def child(self, name):
        return self.runs[f"banana / svgd ({name})"]

    def tagged(self, tag, value):
        """The runs that carry a tag, as they are now."""
        query = f"tags.`parvibench.{tag}` = '{value}'"
        return self.client.search_runs([self.experiment.experiment_id], query)

    def history(self, run, metric):
        return [(m.step, m.value) for m in self.client.get_metric_history(run.info.run_id, metric)]

    def artifacts(self, run, folder=None):
        return {f.path for f in self.client.list_artifacts(run.info.run_id, folder)}

    def cells(self, run):
        """The list of cells that a run holds."""
        path = self.client.download_artifacts(run.info.run_id, "cells.json", str(self.root))
        return json.loads(Path(path).read_text())["cells"]
