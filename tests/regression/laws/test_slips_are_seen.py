"""Slips planted in the code, one a kind of law: the test of the law fails. `tests/studies/planted_bugs.py` plants many more."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import test_easy_targets
import test_invariance
import test_meter
import torch
from asking import assert_right
from test_at_rest import AtRest
from test_langevin import LAWS
from test_simulated_posteriors import PosteriorStein
from test_streams_independent import Independence
from test_task_densities import DensityTruth

from parvibench.checks.summaries import settings_of
from parvibench.core.streams import Streams


def swap(monkeypatch: pytest.MonkeyPatch, module: str, name: str, made: Callable[[Any], Any]) -> None:
    """Replace ``Class.method`` or a function of a module by what is made of it."""
    owner: Any = import_module(f"parvibench.{module}")
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    monkeypatch.setattr(owner, last, made(getattr(owner, last)))


def quieter(normal: Any) -> Any:
    """Noise of half the variance."""
    return lambda self, stream, shape, index=0: normal(self, stream, shape, index) * 0.5**0.5


def certain(uniform: Any) -> Any:
    """Uniform draws of nothing: every move is accepted."""
    return lambda self, stream, shape, index=0: uniform(self, stream, shape, index) * 0


def prior_twice(score: Any) -> Any:
    return lambda self, x, batch=None: score(self, x, batch) - self.prior_precision * x


def one_stream(generator: Any) -> Any:
    """Every replicate has the noise of the first."""

    def wrong(self: Any, law: str, stream: str, shape: tuple[int, ...], *rest: int) -> torch.Tensor:
        first = Streams(self.seed, [0], self.device, self.dtype)
        return generator(first, law, stream, shape, *rest).expand(-1, len(self.replicates), *shape[1:])

    return wrong


def cheaper(charge: Any) -> Any:
    return lambda self, scores=0.0, hvps=0.0, log_densities=0.0: charge(self, scores / 2, hvps, log_densities)


def by_sigma(mixture_score: Any) -> Any:
    """Residuals over sigma, not over its square."""

    def score(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found, step = mixture_score(*given)
        return found * given[4], step

    return score


def without_kinetic(turned: Any) -> Any:
    """Energy errors of the density alone."""

    def wrong(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        direction, energy = turned(*given)
        return direction, 0 * energy

    return wrong


KERNELS = {f"{name} on {task}": (task, name, settings) for task, name, settings in test_invariance.KERNELS}
MCLMC = test_invariance.Invariance("banana", "adjusted-mclmc", settings_of(warmup_steps=0, first_length=0.4), steps=40)
#: module, what of it is replaced, the slip, the test that must fail, a word of its message
PLANTED: list[tuple[str, str, Callable[[Any], Any], Callable[[], object], str]] = [
    ("baselines._isokinetic", "turned", without_kinetic, lambda: assert_right(MCLMC), "log sd of coordinate 1"),
    (
        "baselines._tempering",
        "Base.log_density",
        lambda f: lambda self, x: 0 * f(self, x),
        lambda: assert_right(test_easy_targets.NormalisingConstant("banana")),
        "normalising constant",
    ),
    ("core.streams", "Streams.normal", quieter, lambda: assert_right(LAWS[0]), "law.log sd"),
    (
        "core.streams",
        "Streams.normal",
        quieter,
        lambda: test_invariance.test_invariance(KERNELS["mala on banana"]),
        "log density",
    ),
    (
        "core.streams",
        "Streams.uniform",
        certain,
        lambda: test_invariance.test_ranks(KERNELS["hmc on linear-regression"]),
        "mean rank",
    ),
    ("core.streams", "Streams._fill", one_stream, lambda: assert_right(Independence()), "replicate"),
    ("core.budget", "Meter.charge", cheaper, lambda: test_meter.test_charge("score", 12, 0.2), "assert"),
    ("core.budget", "Meter.charge", cheaper, lambda: test_easy_targets.test_contract_with_data("sghmc"), "not charged"),
    (
        "tasks.linear",
        "LinearTarget.score",
        prior_twice,
        lambda: assert_right(PosteriorStein("linear-regression")),
        "simulated.stein",
    ),
    (
        "tasks.linear",
        "LinearTarget.score",
        prior_twice,
        lambda: assert_right(DensityTruth("linear-regression", 500)),
        "gradient of the log density",
    ),
    ("baselines.uivi", "mixture_score", by_sigma, lambda: assert_right(AtRest("uivi")), "gradient.log var"),
]


@pytest.mark.parametrize(
    ("module", "name", "slip", "law", "word"),
    [
        pytest.param(*p, id=f"{p[1]}, {number}", marks=[pytest.mark.ci] if number % 3 else [])
        for number, p in enumerate(PLANTED)
    ],
)
def test_a_slip_is_red(
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    name: str,
    slip: Callable[[Any], Any],
    law: Callable[[], object],
    word: str,
) -> None:
    law()
    swap(monkeypatch, module, name, slip)
    with pytest.raises(AssertionError, match=word):
        law()
