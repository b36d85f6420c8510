"""The study of stable places makes the tests of the page, and finds what differs between two runs."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sentences
import stable_places
from scipy import stats

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci

REPORTS = Path(__file__).parents[2] / "reports"


def test_the_tail_of_the_rank_sum_is_that_of_the_exact_test() -> None:
    rng = np.random.default_rng(0)
    for m, n in ((2, 3), (5, 40), (20, 200)):
        tail = stable_places.rank_sum_tail(m, n)
        for shift in (-1.0, 0.0, 1.0):
            x, y = rng.normal(shift, size=m), rng.normal(size=n)
            u = int((x[:, None] > y).sum())
            expected = stats.mannwhitneyu(x, y, alternative="greater", method="exact").pvalue
            assert tail[u] == pytest.approx(expected, rel=1e-9)


def test_without_resampling_the_places_are_those_of_the_page() -> None:
    """Places from the floors of the package, and those from the p-values in the file; catches a missing rule."""
    _, now = stable_places.kept(REPORTS / "models", 0)
    cells = sentences.Sentences(REPORTS / "models" / "results.parquet").board().cells
    page = {(r["task"], r["label"]): r["best"] for _, r in cells[cells["finite"]].iterrows()}
    assert now == page


def test_a_rerun_that_differs_in_one_method_says_so(tmp_path: Path) -> None:
    """The best method's values of another run are far larger: its place is lost, and named."""
    source = REPORTS / "dimension"
    cells = sentences.Sentences(source / "results.parquet").board().cells
    first = cells[cells["best"]].iloc[0]
    rows = pd.read_parquet(source / "results.parquet")
    hit = (rows["task"] == first["task"]) & (rows["label"] == first["label"]) & rows["primary"].fillna(False)
    rows.loc[hit, "value"] += 100
    rows.to_parquet(tmp_path / "results.parquet")
    same = stable_places.rerun(source, Path(shutil.copytree(source, tmp_path / "same")))
    assert len(same) == 1
    assert " 0 are new" in same[0]
    lost = [line for line in stable_places.rerun(source, tmp_path) if "lost on" in line]
    assert any(first["task"] in line and first["label"] in line for line in lost)
