"""Files of a comparison of two runs: the table, its figures, and the JSON document."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from parvibench.core.result import to_json_number
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.figures.figure import GREY, Drawing, LabelStyle, slug
from parvibench.reporting.figures.over_tasks import forest
from parvibench.reporting.formatting import name, write_csv
from parvibench.reporting.tables.run_differences import ALPHA, conditions
from parvibench.reporting.text import captions


def drawings(frame: pd.DataFrame) -> list[Drawing]:
    """Changes with their intervals, one figure per scale; the 24 with the smallest p-values. ``frame`` of ``compare``."""
    found = []
    for scale in frame.loc[frame["low"].notna(), "scale"].unique():
        rows = frame[frame["low"].notna() & (frame["scale"] == scale)].sort_values("p_value", kind="stable")
        cells = [f"{name(t)}: {name(m)}" for t, m in zip(rows["task"], rows["label"], strict=True)]
        table = rows[["change", "low", "high"]].set_axis(["value", "low", "high"], axis=1)
        table.index = pd.Index(cells, name="cell")
        colours = ["#0173b2" if p <= ALPHA else GREY for p in rows["p_value"]]
        styles = {cell: LabelStyle(colour) for cell, colour in zip(cells, colours, strict=True)}
        figure, title = (
            slug("difference", "percent" if scale == "%" else str(scale)),
            captions.CHANGES_TITLE.format(scale=scale),
        )
        found += forest(figure, title, table, title, captions.CHANGES, styles, zero=True)
    return found


def write(frame: pd.DataFrame, out: Path) -> list[Path]:
    """Write the table and the figures: ``differences.csv``, ``difference-SCALE.svg``."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "differences.csv"]
    write_csv(frame, paths[0])
    for drawing in drawings(frame):
        paths.append(out / f"{drawing.name}.svg")
        paths[-1].write_bytes(drawing.pictures[0].content)
    return paths


def document(a: StoredRun, b: StoredRun, frame: pd.DataFrame, files: Sequence[Path]) -> dict[str, Any]:
    """The tables as a JSON document; null where a number is missing."""
    rows = [
        {k: to_json_number(v) if isinstance(v, float) else v for k, v in row.items()}
        for row in frame.to_dict("records")
    ]
    differs = conditions(a, b).to_dict("records")
    return {"run_a": a.run.id, "run_b": b.run.id, "differs": differs, "files": [str(p) for p in files], "cells": rows}
