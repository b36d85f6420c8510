"""The truth oracle's questions: green on the code as it is, red on bugs planted here.

A test is red at p <= 1e-6; 20 replicates and fixed seeds.
"""

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from parvibench.checks.outcomes import decide
from parvibench.checks.questions import Bound, Law, Question
from parvibench.checks.truth import truth_questions
from parvibench.checks.truth.at_rest import AtRest
from parvibench.checks.truth.easy_targets import NormalisingConstant, effort_of
from parvibench.checks.truth.invariance import Invariance, Ranks, uniform_ranks
from parvibench.checks.truth.langevin_laws import LangevinLaw
from parvibench.checks.truth.metering import MeterCharges
from parvibench.checks.truth.metrics.estimators import Floors, Mixing, Scores, Unbiased, scores_by_quadrature
from parvibench.checks.truth.randomness import Independence
from parvibench.checks.truth.samplers.contract import Contract
from parvibench.checks.truth.samplers.tolerance import Tolerance
from parvibench.checks.truth.simulated_posteriors import PosteriorRanks, PosteriorStein
from parvibench.checks.truth.steps import summaries
from parvibench.checks.truth.task_facts import DensityTruth
from parvibench.core import registry
from parvibench.core.registry import load_algorithm
from parvibench.core.streams import Streams

THRESHOLD = 1e-6


def red(question: Question, seed: int = 5, replicates: int = 20) -> set[str]:
    """Statistics whose test is red."""
    tests = decide(question, question.measure(range(replicates), seed), THRESHOLD)
    return {t.metric for t in tests if t.verdict != "ok"}


def asked(kind: type, algorithm: str, task: str | None = None) -> Question:
    """The first of the oracle's questions of that kind."""
    found = (q for q in truth_questions() if isinstance(q, kind) and task in (None, q.task))
    return next(q for q in found if q.algorithm == algorithm)


def test_every_test_has_a_name_of_its_own_and_every_sampler_is_asked() -> None:
    questions = truth_questions()
    # Their laws take seconds; names begin with the kind of batches.
    langevin = [q for q in questions if isinstance(q, LangevinLaw)]
    assert max(Counter((q.task, q.algorithm, q.batch is None) for q in langevin).values()) == 1
    others = [q for q in questions if q not in langevin]
    names = Counter((q.task, q.algorithm, name) for q in others for name in q.expected())
    assert max(names.values()) == 1
    samplers = {name for name, row in registry.algorithms().items() if row.kind != "anchor" and not row.library}
    samplers -= {"map", "deep-ensemble"}
    for kind in (Tolerance, Contract):
        assert {q.algorithm for q in questions if isinstance(q, kind)} == samplers
    assert all(q.oracle == "truth" for q in questions)


def test_questions_travel_to_other_processes_and_stay_the_same() -> None:
    sent = [pickle.dumps(q) for q in truth_questions()]
    assert sent == [pickle.dumps(q) for q in truth_questions()]
    assert [pickle.loads(s) for s in sent] == truth_questions()  # our own bytes


#: Tasks whose exact draws are compared with nothing else.
EXACT = [
    "gmm5-2d", "multimodal", "x-shaped", "gmm2-2d", "biased-start-gaussian", "banana", "banana-ksivi-code",
    "correlated-2d", "gmm5-10d", "gmm2-20d", "gaussian-100d", "lapd-mixture-2", "lapd-mixture-8", "lapd-mixture-32",
    "monomial-gamma", "student-t", "funnel-10d", "linear-regression",
]  # fmt: skip
SAMPLE = [
    *((kind, name, "banana") for kind in (Invariance, Ranks) for name in ("mala", "hmc")),
    *((Invariance, "adjusted-mclmc", task) for task in ("banana", "linear-regression")),
    *((NormalisingConstant, "smc", task) for task in ("multimodal", "banana", "gmm2-20d")),
    (PosteriorStein, "density", "linear-regression"),
    (PosteriorStein, "density", "blr-breast-cancer"),
    (PosteriorStein, "density", "bnn-diabetes-sklearn"),
    (PosteriorRanks, "mala", "linear-regression"),
    *((Tolerance, name, "biased-start-gaussian") for name in ("svgd", "psgld", "mean-field", "lapd-decay")),
    *((Tolerance, name, "multimodal") for name in ("mclmc", "adjusted-mclmc", "parallel-tempering", "smc")),
    *((Tolerance, name, "banana") for name in ("parallel-tempering", "smc")),
    *((Contract, name, None) for name in ("svgd", "hmc", "srld", "mied", "full-rank", "mclmc", "smc")),
    *((DensityTruth, "density", name) for name in EXACT),
    (Scores, "metrics", None),
    (Mixing, "metrics", None),
    *((AtRest, name, None) for name in ("ksivi", "ksivi-ustat", "uivi", "sivi")),
    (MeterCharges, "meter", None),
    (Independence, "streams", None),
]


@pytest.mark.parametrize(("kind", "algorithm", "task"), SAMPLE)
def test_clean_code_is_green(kind: type, algorithm: str, task: str | None) -> None:
    """About 400 tests at 1e-6: a false alarm in 2500 seeds."""
    assert not red(asked(kind, algorithm, task))


@pytest.mark.parametrize(
    "question",
    [q for q in truth_questions() if isinstance(q, LangevinLaw)],
    ids=lambda q: f"{q.task}-{q.algorithm}-{q.batch}",
)
def test_langevin_methods_have_their_laws(question: LangevinLaw) -> None:
    """About 100 tests at 1e-6; fewer chains than the oracle's."""
    assert not red(replace(question, chains=60))


def test_metrics_of_exact_draws_have_their_floors() -> None:
    assert not red(Floors("banana", ("mmd2", "ksd", "kl_knn", "ks_marginal", "sd_error")))
    assert not red(Unbiased(sets=10))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_all_questions_are_green_and_their_p_values_uniform(seed: int) -> None:
    """A Kolmogorov test of about 900 p-values, not independent: rejected at 1e-4 only."""
    found = []
    for question in truth_questions():
        expected = question.expected()
        for test in decide(question, question.measure(range(20), seed), THRESHOLD):
            assert test.verdict == "ok", (test.task, test.algorithm, test.metric, test.p_value)
            if isinstance(expected[test.metric], Law):
                found.append(test.p_value)
    assert np.mean(np.array(found) < 0.01) < 0.03
    assert stats.kstest(found, "uniform", alternative="greater").pvalue > 1e-4


# -- planted bugs ------------------------------------------------------------------------------------------------


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


#: One of each kind of question; `tests/studies/planted_bugs.py` plants many more and runs the whole check.
PLANTED = [
    ("baselines._isokinetic", "turned", without_kinetic, Invariance, "adjusted-mclmc", "banana", "kept.log_sd[0]"),
    ("baselines._tempering", "log_base", lambda f: lambda x, sd: 0 * f(x, sd), NormalisingConstant, "smc", "banana",
     "normaliser"),
    ("core.streams", "Streams.normal", quieter, LangevinLaw, "ula", None, "law.log_sd[0]"),
    ("core.streams", "Streams.normal", quieter, Invariance, "mala", None, "kept.log_sd[0]"),
    ("core.streams", "Streams.uniform", certain, Ranks, "hmc", "linear-regression", "rank[0]"),
    ("core.streams", "Streams._fill", one_stream, Independence, "streams", None, "normal.corr[replicate]"),
    ("core.budget", "Meter.charge", cheaper, MeterCharges, "meter", None, "score[batch]"),
    ("core.budget", "Meter.charge", cheaper, Contract, "sghmc", None, "contract.metered"),
    ("tasks.linear", "LinearTarget.score", prior_twice, PosteriorStein, "density", "linear-regression",
     "simulated.stein[0]"),
    ("tasks.linear", "LinearTarget.score", prior_twice, DensityTruth, "density", "linear-regression", "gradient"),
    # all that the past sees in it is progress
    ("metrics.chains", "_smallest_ess", of_first, Mixing, "metrics", None, "mixing.ess_bulk"),
    ("baselines.uivi", "mixture_score", by_sigma, AtRest, "uivi", None, "gradient.log_var[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "bug", "kind", "algorithm", "task", "statistic"), PLANTED)
def test_a_planted_bug_is_red(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, bug: Callable[[Any], Any], kind: type,
    algorithm: str, task: str | None, statistic: str,
) -> None:  # fmt: skip
    question = asked(kind, algorithm, task)
    question.expected()
    swap(monkeypatch, module, name, bug)
    assert statistic in red(question)


# -- parts -------------------------------------------------------------------------------------------------------


def test_a_sampler_may_be_given_by_its_class() -> None:
    effort = effort_of(load_algorithm("ula").example)
    question = Tolerance("biased-start-gaussian", "parvibench.baselines.ula:ULA", effort)
    named = Tolerance("biased-start-gaussian", "ula", effort)
    assert question.measure(range(3), 1) == named.measure(range(3), 1)


def test_summaries_of_points() -> None:
    x = torch.tensor([[[0.0, 1.0], [2.0, 3.0]], [[0.0, 0.0], [torch.inf, 1.0]]])
    found = summaries(x, torch.tensor([[1.0, 3.0], [0.0, 0.0]]), "p.")
    assert found["p.mean[0]"] == [1.0, np.inf]
    assert found["p.log_sd[1]"] == pytest.approx([0.0, np.log(0.5)])
    assert found["p.corr[0]"] == [1.0, np.inf]
    assert found["p.energy"] == [2.0, 0.0]


def test_uniform_ranks_have_their_moments() -> None:
    """Mean 0 with variance (L + 2) / (12 L n), five standard errors of 1000 draws."""
    L, n = 9, 50
    law = uniform_ranks(L, n, 2)["rank[1]"]
    sd = np.sqrt((L + 2) / (12 * L * n))
    assert abs(law.values.mean()) < 5 * sd / np.sqrt(1000)
    assert law.values.std() == pytest.approx(sd, rel=0.12)


def test_scores_by_quadrature_of_one_normal() -> None:
    """Closed forms of Gneiting and Raftery (2007): one standard normal, response 1."""
    found = scores_by_quadrature(np.array([1.0]), np.zeros((1, 1)), np.ones(1))
    crps = 2 * stats.norm.pdf(1) + (2 * stats.norm.cdf(1) - 1) - 1 / np.sqrt(np.pi)
    assert found["crps"] == pytest.approx(crps, abs=1e-10)
    assert found["nll"] == pytest.approx(0.5 + 0.5 * np.log(2 * np.pi))
    assert (found["rmse"], found["coverage"]) == (1.0, 1.0)


def test_bounds_are_what_a_method_is_allowed() -> None:
    expected = asked(Tolerance, "svgd").expected()
    moments = {f"{s}[{d}]" for s in ("mean", "variance") for d in range(2)}
    assert set(expected) == moments | {"correlation[0]", "diverged"}
    assert all(e.limit > 0 for e in expected.values() if isinstance(e, Bound))
