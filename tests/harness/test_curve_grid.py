"""Curves as arrays give the same answers as tables of their rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from records import make_curve, make_record

from parvibench.core.errors import DamagedError, StoreError
from parvibench.harness.store.cell_files import CurveGrid
from parvibench.harness.store.results import metric_values
from parvibench.harness.store.store import Store


def random_curve(rng: np.random.Generator) -> pd.DataFrame:
    """Replicates that stop at random, metrics that begin late, values that are undefined; rows in any order."""
    ids = rng.choice(20, size=5, replace=False)
    stops, begins = rng.integers(1, 6, size=5), rng.integers(0, 3, size=3)
    rows = [
        (r, c, 10 * c, float(rng.uniform(1, 9)), 0.1 * c, f"metric {m}", float(rng.choice([rng.normal(), np.nan], p=[0.9, 0.1])))
        for r, stop in zip(ids, stops, strict=True)
        for c in range(stop)
        for m in range(3)
        if c >= begins[m]
    ]  # fmt: skip
    curve = make_curve(rows)
    of_checkpoint = curve.drop_duplicates(["replicate", "checkpoint"]).set_index(["replicate", "checkpoint"])
    keys = pd.MultiIndex.from_frame(curve[["replicate", "checkpoint"]])
    curve["score_evaluations"] = of_checkpoint["score_evaluations"].reindex(keys).to_numpy()
    return curve.sample(frac=1.0, random_state=int(rng.integers(1000))).reset_index(drop=True)


def test_a_grid_says_what_the_rows_of_the_curve_say(tmp_path: Path) -> None:
    """Stored and read again; catches a transposed axis, a replicate that is counted twice, and one that is forgotten."""
    store, rng = Store(tmp_path), np.random.default_rng(1)
    for i in range(40):
        curve, record = random_curve(rng), make_record(str(i))
        store.write_cell(record, curve)
        grid, diverged = CurveGrid.of(store.curve(record.key)), list(range(0, 20, 3))
        for metric in ("metric 0", "metric 2", "metric 9"):
            rows, found = curve[curve["metric"] == metric], grid.metric(metric)
            checkpoints = sorted(rows["checkpoint"].unique())
            assert len(found) == len(checkpoints)
            for position, checkpoint in enumerate(checkpoints):
                at = rows[rows["checkpoint"] == checkpoint]
                stopped = len(set(diverged) - set(at["replicate"]))
                expected = metric_values(metric, [*at["value"], *[None] * stopped])
                assert sorted(metric_values(metric, found.at(position, diverged))) == sorted(expected)
                there = found.measured[position]
                assert sorted(found.replicates[there]) == sorted(at["replicate"])
                assert sorted(found.spent["score_evaluations"][position, there]) == sorted(at["score_evaluations"])
            medians = rows.groupby("checkpoint")["value"].median().dropna()
            of_grid = grid.medians(metric)
            assert of_grid[~np.isnan(of_grid)] == pytest.approx(medians.to_numpy())


def test_a_curve_that_was_written_again_is_read_as_it_is_now_and_a_harmed_one_is_not_read(tmp_path: Path) -> None:
    store, record, rng = Store(tmp_path), make_record(), np.random.default_rng(3)
    store.write_cell(record, random_curve(rng))
    again = random_curve(rng)
    store.write_cell(record, again)
    found = CurveGrid.of(store.curve(record.key)).metric("metric 1")
    assert len(found) == again.query("metric == 'metric 1'")["checkpoint"].nunique()
    file = store.folder(record.key) / "curve.parquet"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedError, match="not the file that was written"):
        store.curve(record.key)


def test_few_rows_that_would_fill_the_memory_are_refused() -> None:
    """Six thousand rows, each of its own replicate and checkpoint, ask for 36 million values."""
    curve = make_curve([(i, i, i, 1.0, 1.0, "ksd", 0.5) for i in range(6000)])
    with pytest.raises(StoreError, match="1 metrics, 6000 checkpoints and 6000 replicates is too large"):
        CurveGrid.of(curve)
