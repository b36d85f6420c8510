"""Iterations to a divergence over dimensions: interpolation and exponents against closed forms."""

import math

import numpy as np
import pytest
import records
from made_stores import make_record, only_reference, write_store

from parvibench.reporting.facts.courses import exponent, iterations_to
from parvibench.reporting.tables.curve_tables import growth_table

CHECKPOINTS = (5, 11, 23, 50, 108, 232, 500)


def rows(divergence):
    return [(r, c, k, 1.0, 1.0, "kl_projected", divergence(k)) for r in range(7) for c, k in enumerate(CHECKPOINTS)]


def grid(divergence):
    return records.make_grid(rows(divergence))


def test_crossings_of_a_power_law_are_exact():
    """KL = (k / 20)^-2 is 0.1 at k = 20 sqrt(10), whatever the checkpoints."""
    assert iterations_to(grid(lambda k: (k / 20) ** -2), 0.1) == pytest.approx([20 * math.sqrt(10)] * 7)
    assert iterations_to(grid(lambda k: 1.0), 0.1) == [math.inf] * 7
    assert iterations_to(grid(lambda k: 0.01), 0.1) == [5.0] * 7


def test_the_exponent_is_that_of_the_power_law(tmp_path):
    """Iterations proportional to D^0.5 and to D^0."""
    tasks = {f"lapd-mixture-{d}": d for d in (2, 8, 32, 128)}
    cells = []
    for task, d in tasks.items():
        for label, power in (("ula", 0.5), ("lapd", 0.0)):
            record = make_record(f"{task}{label}", task, label, values={"kl_projected": [1.0] * 7})
            cells.append((record, records.make_curve(rows(lambda k, s=d**power: (k / s) ** -1)), None))
    with only_reference(None, None):
        table = growth_table(write_store(tmp_path, cells))
    shown = {(r.entries[0].text, float(r.entries[1].sort)): r.entries for r in table.rows}
    assert float(shown["ula", 0.1][2].sort) == pytest.approx(0.5)
    assert float(shown["lapd", 0.1][2].sort) == pytest.approx(0.0, abs=1e-9)
    # KL = D^(1/2) / k falls to 0.01 after 100 D^(1/2) iterations: beyond the last checkpoint, 500, from D = 32 on.
    assert [e.text for e in shown["ula", 0.01][3:]] == ["141", "283", "never", "never"]
    assert [c.title for c in table.columns[3:]] == ["D = 2", "D = 8", "D = 32", "D = 128"]


def test_fewer_than_three_points_have_no_exponent():
    assert exponent([2, 8], [10.0, 20.0]) is None
    assert exponent([2, 8, 32], [10.0, math.inf, 20.0]) is None
    rng = np.random.default_rng(0)
    kept = 0
    for _ in range(300):
        k = 10 * np.array([2, 8, 32, 128, 512, 2048.0]) ** 0.5 * np.exp(rng.normal(0, 0.2, 6))
        _, low, high = exponent([2, 8, 32, 128, 512, 2048], k)
        kept += low <= 0.5 <= high
    assert kept / 300 == pytest.approx(0.95, abs=5 * math.sqrt(0.05 * 0.95 / 300))
