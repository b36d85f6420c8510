"""Models of Pyro, PyMC, NumPyro and Stan draw parameters and data by their own laws, and have the posteriors of these data.

Every posterior is compared with the task of the same program made with the simulated data, and the draws with the law written down here.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import parvibench as pb
from parvibench.core.errors import InputError
from parvibench.targets.generative import Drawn, Generative, Side, generative

SDS = np.array([2.0, 3.0, 4.0])
SETS = 6
STAN = "data { int J; vector[J] y; vector[J] s; } parameters { real mu; real<lower=0> tau; } "
STAN += "model { mu ~ normal(1, 5); tau ~ exponential(0.5); y ~ normal(mu, sqrt(square(tau) + square(s))); }"
SIMULATOR = "data { int J; vector[J] s; } generated quantities { real mu = normal_rng(1, 5); "
SIMULATOR += "real tau = exponential_rng(0.5); vector[J] y; "
SIMULATOR += "for (j in 1:J) y[j] = normal_rng(mu, sqrt(square(tau) + square(s[j]))); }"


def in_pyro(y: Tensor, s: Tensor) -> None:
    import pyro
    import pyro.distributions as dist

    mu = pyro.sample("mu", dist.Normal(1.0, 5.0))
    tau = pyro.sample("tau", dist.Exponential(0.5))
    with pyro.plate("school", 3):
        pyro.sample("y", dist.Normal(mu, (tau**2 + s**2).sqrt()), obs=y)


def pyro_task(y: Any) -> Any:
    return pb.from_pyro(in_pyro, torch.as_tensor(y), torch.tensor(SDS))


def numpyro_task(y: Any) -> Any:
    numpyro = pytest.importorskip("numpyro", reason="needs NumPyro: pip install '.[jax]'")

    def model(y: Any) -> None:
        dist = numpyro.distributions
        mu = numpyro.sample("mu", dist.Normal(1.0, 5.0))
        tau = numpyro.sample("tau", dist.Exponential(0.5))
        numpyro.sample("y", dist.Normal(mu, (tau**2 + SDS**2) ** 0.5), obs=y)

    return pb.from_numpyro(model, np.asarray(y))


def pymc_task(y: Any) -> Any:
    pm = pytest.importorskip("pymc", reason="needs PyMC: pip install '.[pymc]'")
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 1.0, 5.0), pm.Exponential("tau", 0.5)
        pm.Normal("y", mu, (tau**2 + SDS**2) ** 0.5, observed=np.asarray(y))
    return pb.from_pymc(model, name="schools")


DOORS = {"pyro": pyro_task, "numpyro": numpyro_task, "pymc": pymc_task}


def data_of(drawn: Drawn) -> np.ndarray[Any, Any]:
    """The simulated y, (R, 3)."""
    if isinstance(drawn.target, Side):
        return np.array([json.loads(one.task.model.data)["y"] for one in drawn.target.targets])  # type: ignore[attr-defined]
    data = drawn.target._data  # type: ignore[attr-defined]
    return np.array((data["y"] if isinstance(data, dict) else data[0]).tolist())


@pytest.fixture(params=[*DOORS, "stan"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Generative, Any]:
    """A model, and what makes its task of data."""
    if request.param != "stan":
        make = DOORS[request.param]
        return generative(make([1.0, 2.0, 3.0])), make
    pytest.importorskip("stanli", reason="needs stanli: pip install '.[stan]'")
    program, simulator = tmp_path / "schools.stan", tmp_path / "draws.stan"
    program.write_text(STAN)
    simulator.write_text(SIMULATOR)
    make = lambda y: pb.from_stan(program, {"J": 3, "y": np.asarray(y), "s": SDS})  # noqa: E731
    return generative(make([1.0, 2.0, 3.0]), simulator=simulator), make


def test_posteriors_are_those_of_the_simulated_data(door: tuple[Generative, Any]) -> None:
    model, make = door
    drawn = model.draw(3, range(SETS))
    x = drawn.truth[:, None] + torch.tensor([[0.0, 0.0], [0.3, -0.2], [-1.0, 0.5]], dtype=torch.float64)
    density, score = drawn.target.log_density_and_score(x)
    for r, y in enumerate(data_of(drawn)):
        alone = make(y).target([0], "cpu", torch.float64)
        own, slope = alone.log_density_and_score(x[r : r + 1])
        torch.testing.assert_close(density[r] - density[r, 0], own[0] - own[0, 0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(score[r], slope[0], rtol=1e-6, atol=1e-8)


def test_truths_and_data_have_the_laws_of_the_model(door: tuple[Generative, Any]) -> None:
    """z-values of means and of squares below 4.5; the same numbers give the same data sets."""
    model, _ = door
    n = 60
    drawn = model.draw(5, range(n))
    mu, tau, y = drawn.truth[:, 0], drawn.truth[:, 1].exp(), torch.from_numpy(data_of(drawn))
    standard = (y - mu[:, None]) / (tau[:, None] ** 2 + torch.tensor(SDS) ** 2).sqrt()
    for z in ((mu - 1) / 5, standard.reshape(-1)):
        assert abs(float(z.mean())) * len(z) ** 0.5 < 4.5
        assert abs(float((z**2).mean()) - 1) * (len(z) / 2) ** 0.5 < 4.5
    assert abs(float((tau / 2).mean()) - 1) * n**0.5 < 4.5
    torch.testing.assert_close(model.draw(5, range(n)).truth, drawn.truth)
    start = drawn.start(drawn.target, 3, [Generator().manual_seed(i) for i in range(n)])
    assert start.shape == (n, 3, 2)


def test_models_without_data_or_simulator_are_refused(tmp_path: Path) -> None:
    import pyro

    def silent() -> None:
        mu = pyro.sample("mu", pyro.distributions.Normal(0.0, 1.0))
        pyro.factor("loss", -mu.abs())

    with pytest.raises(InputError, match="loss"):
        generative(pb.from_pyro(silent)).draw(1, range(2))
    pytest.importorskip("stanli", reason="needs stanli: pip install '.[stan]'")
    (tmp_path / "a.stan").write_text(STAN)
    task = pb.from_stan(tmp_path / "a.stan", {"J": 3, "y": SDS, "s": SDS})
    with pytest.raises(InputError, match="--simulator"):
        generative(task)
    (tmp_path / "b.stan").write_text("generated quantities { real mu = normal_rng(0, 1); }")
    with pytest.raises(InputError, match=r"b\.stan.*generates no tau"):
        generative(task, simulator=tmp_path / "b.stan")
