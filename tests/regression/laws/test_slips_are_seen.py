"""Slips planted in the code, one a kind of law: the test of the law fails. `tests/studies/planted_bugs.py` plants many more."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import test_easy_targets
import test_invariance
import test_meter
import test_metric_formulas
import torch
from asking import assert_right
from test_at_rest import AtRest
from test_langevin import LAWS
from test_metric_estimators import Mixing
from test_simulated_posteriors import PosteriorStein
from test_streams_independent import Independence
from test_task_densities import DensityTruth

from parvibench.checks.summaries import settings_of
from parvibench.core.streams import Streams
from parvibench.metrics import chains, mmd, stein, transport


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


def of_first(smallest: Any) -> Any:
    """The effective size of one coordinate only."""
    return lambda path, **asked: smallest(path[..., :1], **asked)


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
    # all that a comparison with earlier values sees in it is progress
    ("metrics.chains", "_smallest_ess", of_first, lambda: assert_right(Mixing()), "mixing.ess bulk"),
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


@pytest.mark.parametrize(
    ("module", "name", "slip", "seen"),
    [
        (mmd, "_FIXED_BANDWIDTH", lambda h: 2 * h, {"mmd2_u_fixed"}),
        (transport, "thin", lambda thin: lambda x, most: thin(x, most)[1:], {"w1", "w2", "w2sq_window_5"}),
        (chains, "GROUPS", lambda n: n - 1, {"nested rhat"}),
        (stein, "_scale", lambda scale: lambda *args: 1.01 * scale(*args), {"ksd"}),
    ],
)
def test_a_slip_in_a_metric_is_seen_where_it_acts(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, slip: Callable[[Any], Any], seen: set[str]
) -> None:
    monkeypatch.setattr(module, name, slip(getattr(module, name)))
    test_metric_formulas._both.cache_clear()
    red = set()
    for of, names in test_metric_formulas.NAMES.items():
        for metric in names:
            try:
                test_metric_formulas.test_formula(of, metric)
            except AssertionError:
                red.add(metric)
    test_metric_formulas._both.cache_clear()
    assert seen <= red <= seen | {"w2sq_window_8", "w2sq_window_10"}
