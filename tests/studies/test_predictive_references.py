"""The study of predictive references, made very short."""

from pathlib import Path

import numpy as np
import predictive_references as study
import pytest
import torch
from torch import Tensor

from parvibench.core.reference import Predictions, load_predictions
from parvibench.core.registry import load_task
from parvibench.metrics.floors import p_value

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci

TASK = load_task("bnn-diabetes-sklearn")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two splits, three chains, segments of two records; twenty draws are shipped."""
    changed = {"SPLITS": 2, "TRAJECTORY": 2, "RECORDS": 4, "DRAWS": 20, "STATES": 8, "FINGERPRINT": 4,
               "SIZES": (5,), "FLOOR_SETS": 20, "ADAM": 3}  # fmt: skip
    for name, value in changed.items():
        monkeypatch.setattr(study, name, value)

    monkeypatch.setattr(study, "Fused", lambda plain: plain)  # compiling takes longer than the run


def test_the_score_of_the_other_coordinates_is_their_density_s_gradient() -> None:
    """And the density is the posterior's with the Jacobian: catches a lambda that is sampled from the wrong law."""
    base = TASK.target([0], "cpu", torch.float64)
    target = study.NonCentred(base)
    x = TASK.initial(base, 3, [torch.Generator().manual_seed(1)])
    z = target.from_base(x).requires_grad_()
    (gradient,) = torch.autograd.grad(target.log_density(z).sum(), z)
    value, score = target.log_density_and_score(z.detach())
    torch.testing.assert_close(score, gradient)
    torch.testing.assert_close(target.to_base(z), x)
    jacobian = torch.func.jacrev(target.to_base)(z[0, 0].detach())
    torch.testing.assert_close(value[0, 0], base.log_density(x)[0, 0] + torch.linalg.slogdet(jacobian)[1])


def run(role: str, folder: Path) -> study.Run:
    return study.Run(TASK.name, role, folder, chains=3, warmup=4, every=2)


@pytest.mark.usefixtures("short")
def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Two segments, and one, stopped, and another: the same records. Catches streams or a step that begin again."""

    def segments(folder: Path, role: str, number: int) -> None:
        folder.mkdir(exist_ok=True)
        with torch.inference_mode():
            turns = run(role, folder).segments()
            for _ in range(number):
                next(turns)

    for role in ("wide", "modes"):
        segments(tmp_path / "whole", role, 2)
        segments(tmp_path / "parts", role, 1)
        segments(tmp_path / "parts", role, 1)
        whole, parts = (study.history(run(role, tmp_path / f)) for f in ("whole", "parts"))
        assert whole["steps"] == parts["steps"] == 16
        assert np.array_equal(whole["f"], parts["f"])


@pytest.mark.usefixtures("short")
def test_what_is_written_is_read_and_short_runs_pass_no_gate(tmp_path: Path) -> None:
    with torch.inference_mode():
        runs = {role: run(role, tmp_path) for role in ("wide", "modes")}
        for one in runs.values():
            turns = one.segments()
            for _ in range(4):
                next(turns)
        record, records = study.evidence(runs)
        assert not record["gates"][f"wide: bulk and tail ESS of predictions >= {study.MIN_ESS}"]
        study.write(runs, record, records, tmp_path)
    found = load_predictions(TASK.name, tmp_path)
    assert isinstance(found, Predictions)
    known = found.of((1,))
    assert known.draws.shape == (1, 20, 44)
    assert set(found.floors) == set(study.FLOORED)
    f = TASK.predictive((1,), "cpu", torch.float64).predict(found.states[1:])[0]
    assert float((f.mean(1) - known.mean).abs().max()) < float(5 * known.sd.max())


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_floors_hold_independent_draws_and_find_moved_ones() -> None:
    """f(x_t) ~ N(t, 1) with noise 0.5, known in full. Fresh exact draws rank evenly in the floors, moved ones beyond.

    Means of 30 p-values lie within 0.5 -+ 4 standard errors. Catches floors of draws that are in the reference's mean only.
    """
    points, n = torch.arange(6).double(), 20
    f = points + normal(1, 200, 10, 6, seed=1)
    noise = torch.full((1, 200, 10), 0.5).double()
    y = points[None] + normal(1, 6, seed=2)
    log_p = -0.5 * (y - points).square() / 1.25 - 0.5 * np.log(2 * np.pi * 1.25)
    shipped = {"draws": normal(1, 300, 6, seed=3), "noise": torch.full((1, 300), 0.5).double(), "log_p": log_p}
    floors = study.certified_floors(TASK, y, f, noise, shipped, torch.Generator().manual_seed(4), sizes=(n,), sets=200)
    known = Predictions(
        points[None], torch.ones(1, 6).double(), torch.empty(0), torch.empty(0), {}, floors, **shipped
    )  # fmt: skip
    context = study.Context(TASK, predictive=study.Drawn(y, known.of((0,))))
    for name in study.FLOORED:
        metric, floor = study.load_metric(name), known.floor(name, n)

        def p_of(seed: int, by: float, metric=metric, floor=floor, name=name) -> float:
            x = torch.cat([points + by + normal(1, n, 6, seed=seed), torch.full((1, n, 1), 0.5).double().log()], 2)
            return p_value(name, metric(x, context).numpy(), floor)

        assert abs(np.mean([p_of(seed, 0.0) for seed in range(10, 40)]) - 0.5) < 4 * 0.29 / 30**0.5, name
        if name != "predictive_sd_error":
            assert p_of(50, 1.5) < 0.02, name
