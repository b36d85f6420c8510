"""Pictures of samples and predictions show what they claim."""

import numpy as np
import pytest
import torch
from made_stores import make_record, only_reference, write_store

from parvibench.core import registry
from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.metrics.predictive import coverage
from parvibench.reporting.figures import high_dimensional, predictive_intervals, vector
from parvibench.reporting.figures.figure import TaskCells, label_styles

NETWORK = "bnn-diabetes-sklearn"


def shown(folder, task, label, samples, **values):
    """The only cell of a store."""
    replicates = tuple(range(len(samples)))
    record = make_record("a", task, label, values=values, replicates=replicates, chunk=len(samples))
    results = write_store(folder, [(record, None, samples)])
    return TaskCells(results, task, label_styles(results), [label])


@pytest.fixture
def six_dimensions():
    """A reference of correlated normals under a task's name, and samples that err in coordinates 3 and 5."""
    generator = np.random.default_rng(0)
    mixing = np.eye(6) + 0.5 * np.eye(6, k=1)
    exact = generator.normal(size=(4000, 6)) @ mixing
    reference = Reference(torch.from_numpy(exact), True, {}, {})
    samples = generator.normal(size=(7, 300, 6)) @ mixing
    samples[..., 2] += 3
    samples[..., 4] *= 0.3
    with only_reference("gmm5-10d", reference):
        yield exact, samples


def test_the_worst_coordinates_are_found(six_dimensions):
    exact, samples = six_dimensions
    assert high_dimensional.worst_coordinates(samples.reshape(-1, 6), exact)[:2].tolist() == [2, 4]


@pytest.mark.ci
def test_the_corner_shows_points_of_the_worst_coordinates(six_dimensions, tmp_path):
    (corner,) = high_dimensional.corner(shown(tmp_path, "gmm5-10d", "ula", six_dimensions[1], sliced_w2=[1.0] * 7))
    assert corner.data["label"].value_counts().to_dict() == {"reference": 300, "ula": 300}
    assert "x3, x5" in corner.note


def test_calibration_is_the_coverage_of_the_intervals(tmp_path):
    """At the level 95% it is the metric ``coverage`` of the same samples."""
    task = registry.load_task(NETWORK)
    draws = task.problem(predictive_intervals.SPLITS, 0, dtype=torch.float64).init(20)
    cells = shown(tmp_path, NETWORK, "sgld", draws.numpy(), nll=[1.0])
    (calibration,) = predictive_intervals.predictions(cells)
    held_out = task.predictive(range(predictive_intervals.SPLITS), "cpu", torch.float64)
    expected = coverage(draws.float().double(), Context(task, predictive=held_out)).mean()
    at_95 = calibration.data.loc[calibration.data["probability"].round(2) == 0.95, "inside"].item()
    assert at_95 == pytest.approx(float(expected), abs=1e-9)
    assert calibration.data["inside"].is_monotonic_increasing


def test_paths_are_short_and_lead_where_they_led():
    """Differences in tenths; steps to where the path is already are left out."""
    steps = "M 1 2 L 2 2 L 3.5 2 L 3.5 4 L 3.5 3 L 4 3.5 L 5 4.5 z M 0 0 L 0 1 L 0 3 L 1 3"
    assert vector._short_path(steps) == "m1 2 1 0 1.5 0 0 2 0 -1 .5 .5 1 1zm-1 -2 0 1 0 2 1 0"
    generator = np.random.default_rng(0)
    corners = np.cumsum(generator.integers(-2, 3, size=(200, 2)), axis=0) / 5
    path = "M " + " L ".join(f"{x} {y}" for x, y in corners)
    short = np.array([float(v) for v in vector._short_path(path).removeprefix("m").split()]).reshape(-1, 2).cumsum(0)
    assert len(short) < len(corners)
    assert np.allclose(short[0], corners[0])
    assert np.allclose(short[-1], corners[-1])
    assert {tuple(p) for p in short.round(1)} <= {tuple(p) for p in corners.round(1)}
    length = [np.abs(np.diff(p, axis=0)).sum() for p in (short, corners)]
    assert length[0] == pytest.approx(length[1])
