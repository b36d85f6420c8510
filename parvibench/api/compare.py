"""``compare``: two runs, cell by cell."""

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from parvibench.core.errors import UnknownNameError
from parvibench.core.result import to_json_number
from parvibench.harness.store.files import output_place
from parvibench.reporting.facts import differences
from parvibench.reporting.formatting import write_csv
from parvibench.reporting.presented import Results

from .report import Run, loaded


def compare(first: Run, second: Run, metric: str | None = None) -> pd.DataFrame:
    """Compare the second run with the first, cell by cell; for the columns see ``reporting.facts.differences.compare``.

    A run is its results, or the folder of a store (its latest run); the ``metric`` by default the primary one of each task.
    """
    return differences.compare(loaded(first), loaded(second), metric)


class Comparison(NamedTuple):
    """A comparison with its file."""

    first: Results
    second: Results
    conditions: pd.DataFrame  #: settings, versions and hardware that differ
    cells: pd.DataFrame  #: as of ``compare``
    file: Path  #: the table

    def document(self) -> dict[str, Any]:
        """The tables as a JSON document; null where a number is missing."""
        rows = self.cells.to_dict("records")
        cells = [{k: to_json_number(v) if isinstance(v, float) else v for k, v in row.items()} for row in rows]
        runs = {"run_a": self.first.run.id, "run_b": self.second.run.id}
        return runs | {"differs": self.conditions.to_dict("records"), "files": [str(self.file)], "cells": cells}


def write_comparison(first: Run, second: Run, to: str | Path, metric: str | None = None) -> Comparison:
    """Compare two runs and write the table into the folder ``to``."""
    place = output_place(to, folder=True)
    a, b = loaded(first), loaded(second)
    if metric is not None and metric not in (known := {m for run in (a, b) for c in run.cells for m in c.values}):
        raise UnknownNameError("metric of these runs", metric, sorted(known))
    cells = differences.compare(a, b, metric)
    place.mkdir(parents=True, exist_ok=True)
    write_csv(cells, place / "differences.csv")
    return Comparison(a, b, differences.conditions(a, b), cells, place / "differences.csv")
