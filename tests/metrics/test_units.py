"""Metrics in units of the reference's standard deviations: as if everything had been divided before."""

from dataclasses import replace

import torch

from parvibench.core.reference import Reference
from parvibench.metrics.common import median_distance
from parvibench.metrics.compute import compute

METRICS = ("sliced_w2", "mmd2", "energy_distance", "kl_knn", "ksd", "mean_error", "ks_marginal", "path_primary")
UNITS = torch.tensor([1e-3, 1e5], dtype=torch.float64)


def test_a_badly_scaled_target_is_judged_as_the_well_scaled_one(make_context, randn) -> None:
    rows, samples, path = randn(500, 2), 0.3 + 1.2 * randn(3, 100, 2), randn(3, 20, 10, 2)
    plain = make_context(2, draws=rows)
    context = replace(plain, path=path)
    wanted, _ = compute(METRICS, samples, context)
    certificate = {"bandwidth": median_distance(rows), "units": UNITS.tolist()}
    scaled = replace(context, reference=Reference(rows * UNITS, True, certificate), path=path * UNITS)
    target = plain.target
    assert target is not None

    class Wide(type(target)):  # type: ignore[misc]
        def log_density(self, x, batch=None):
            return target.log_density(x / UNITS, batch)

        def score(self, x, batch=None):
            return target.score(x / UNITS, batch) / UNITS

    found, absent = compute(METRICS, samples * UNITS, replace(scaled, target=Wide(2)))
    assert set(found) == set(wanted) == set(METRICS), absent
    for name, values in wanted.items():
        torch.testing.assert_close(found[name], values, rtol=1e-6, atol=1e-9)


def test_without_units_one_coordinate_is_all_that_counts(make_context, randn) -> None:
    """The trap: an error in the small coordinate alone is not seen."""
    rows, samples = randn(500, 2), randn(1, 100, 2)
    wrong = samples + torch.tensor([3.0, 0.0], dtype=torch.float64)
    values = {}
    for units in (None, UNITS.tolist()):
        reference = Reference(rows * UNITS, True, {"bandwidth": 1.0, "units": units})
        context = replace(make_context(2, draws=rows), reference=reference)
        values[units is None] = [
            float(compute(["sliced_w2"], x * UNITS, context)[0]["sliced_w2"]) for x in (samples, wrong)
        ]
    assert values[True][1] < 1.01 * values[True][0]
    assert values[False][1] > 5 * values[False][0]
