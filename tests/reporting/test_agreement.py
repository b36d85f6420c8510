"""Does the run of a task without reference name a method to trust where there is one, and none where there is none?"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from records import make_record

from parvibench.reporting.facts import agreement
from parvibench.reporting.facts.agreement import Draws, agreements

R, N, DIM = 5, 100, 4


def chains(rng: np.random.Generator, rho: float = 0.0, scale: float = 1.0, shift: float = 0.0) -> Draws:
    """Stationary chains of a law with heavy tails, autocorrelation about rho, and their effective sizes."""
    x = np.empty((R, N, DIM))
    x[:, 0] = rng.normal(size=(R, DIM))
    for t in range(1, N):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=(R, DIM))
    return (np.sinh(3 * (scale * x + shift)), np.full(R, N * (1 - rho) / (1 + rho)))


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_right_methods_differ_at_most_at_the_level(rho: float) -> None:
    """Two of 100 at 1% by chance; with the number of draws in place of the effective one, most at 0.6."""
    rng = np.random.default_rng(1)
    trials = [agreements({"a": chains(rng), "b": chains(rng, rho), "c": chains(rng, rho)}) for _ in range(100)]
    assert sum(any(same is False for others in found.values() for same in others.values()) for found in trials) <= 5


@pytest.mark.parametrize("wrong", [{"scale": 0.65}, {"scale": 1.6}, {"shift": 0.45}])
def test_a_wrong_method_differs(wrong: dict[str, float]) -> None:
    rng = np.random.default_rng(2)
    found = [agreements({"a": chains(rng), "b": chains(rng, **wrong)}) for _ in range(20)]
    assert sum(each["a"]["b"] is False for each in found) >= 18


def test_few_effective_draws_settle_nothing() -> None:
    rng = np.random.default_rng(3)
    few = (chains(rng)[0], np.full(R, 2.0))
    assert agreements({"a": chains(rng), "b": few})["a"]["b"] is None


def cell(algorithm: str, label: str = "", **values: float) -> Any:
    measured = {"rhat": 1.0, "ess_bulk": 90.0} | values
    return make_record(
        label or algorithm, algorithm=algorithm, label=label or algorithm, kind="chains", samples=N, replicates=tuple(range(R)),
        values={k: [v] * R for k, v in measured.items()},
    )  # fmt: skip


def test_a_method_is_trusted_that_agrees_with_another_algorithm_and_that_none_contradicts() -> None:
    rng = np.random.default_rng(5)
    right, wrong = chains(rng), chains(rng, scale=0.5)
    cells = [cell("nuts"), cell("mala"), cell("ula"), cell("nuts", "nuts-long")]

    def chosen(of: dict[str, Draws], candidates: list[str]) -> str | None:
        found = agreement.trusted([c for c in cells if c.label in of], agreements(of), candidates)
        return found and found.label

    assert chosen({"nuts": right, "mala": chains(rng), "ula": wrong}, ["nuts"]) == "nuts"
    assert chosen({"nuts": right, "mala": chains(rng), "ula": wrong}, ["nuts", "ula"]) is None
    assert chosen({"nuts": right, "nuts-long": chains(rng), "ula": wrong}, ["nuts", "nuts-long"]) is None
    assert chosen({"nuts": right, "mala": chains(rng)}, []) is None


@pytest.mark.parametrize(
    "bad", [{"rhat": 1.3}, {"ess_bulk": 10.0}, {"divergences": 0.02}], ids=["R-hat", "ESS", "divergences"]
)
def test_diagnostics_of_its_own_must_pass(bad: dict[str, float]) -> None:
    none: Any = SimpleNamespace(samples=lambda _: np.zeros((R, N, DIM)))
    assert agreement.sound(none, cell("nuts"))
    assert not agreement.sound(none, cell("nuts", **bad))
    assert not agreement.sound(none, make_record(kind="generator"))
