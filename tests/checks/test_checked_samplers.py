"""Samplers of one's own: right ones are green, wrong ones red, and each of them in words."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import wrong_samplers
from command_line import Run

from parvibench.checks import output, words
from parvibench.checks.question import Question
from parvibench.checks.rounds import Findings, check
from parvibench.checks.selection import outside_questions
from parvibench.checks.targets import STABLE, moments

FILE = Path(wrong_samplers.__file__)


def checked(sampler: Any, steps: int = 500, only: str = "", **options: Any) -> Findings:
    """The outcome of the questions whose names begin with ``only``."""
    sampler = sampler() if isinstance(sampler, type) else sampler
    questions = outside_questions(sampler, {}, steps, **options)
    return check([q for q in questions if q.name.startswith(only)], seed=3)


@pytest.mark.parametrize("name", STABLE)
def test_targets_are_what_they_say(name: str) -> None:
    """Scores by autograd; moments of 10^5 draws within five standard errors; energies."""
    task = STABLE[name]
    target = task.in_units(0.3).target([0], "cpu", torch.float64)
    x = torch.randn(1, 7, task.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    torch.testing.assert_close(target.score(x.detach()), torch.autograd.grad(target.log_density(x).sum(), x)[0])
    draws = task.exact(100_000, torch.Generator().manual_seed(2))
    assert task.facts.mean is not None
    assert task.facts.sd is not None
    z = (draws - task.facts.mean) / task.facts.sd
    assert (z.mean(0).abs() < 5 / math.sqrt(len(z))).all()
    assert ((z.square().mean(0) - 1).abs() < 5 * math.sqrt(2 / len(z))).all()
    energy = task.target([0], "cpu", torch.float64).log_density(draws[None])
    assert (float(energy.mean()), float(energy.std())) == pytest.approx(moments(name).energy, rel=0.02)


@pytest.mark.ci
@pytest.mark.parametrize("name", ["ula", "svgd", *(pytest.param(n, marks=pytest.mark.slow) for n in ("mala", "sghmc"))])
def test_right_samplers_are_green_at_their_defaults(name: str) -> None:
    result = checked(name)
    assert result.verdict == "pass", output.lines(result)


@pytest.mark.parametrize(
    ("sampler", "question", "statistic"),
    [
        (wrong_samplers.RejectedScore, "reversibility on tilted", "rank_spread"),
        pytest.param(wrong_samplers.WholeLastKick, "invariance on tilted", "far.stein", marks=pytest.mark.ci),
        (wrong_samplers.IgnoresSeed, "contract", "contract.seeded"),
        (wrong_samplers.SharedNoise, "independence", "dependence[chains]"),
        (wrong_samplers.SharedReplicates, "independence", "dependence[replicates]"),
        (wrong_samplers.SortedCoordinates, "moments", "correlation[0]"),
        (wrong_samplers.DuplicatedPoints, "independence", "ties"),
        (wrong_samplers.ExactDraws, "contract", "contract.scored"),
        (wrong_samplers.InPlace, "contract", "contract.untouched"),
        (wrong_samplers.GlobalNoise, "contract", "contract.repeatable"),
        (wrong_samplers.FromNeighbour, "contract", "contract.alone"),
        (wrong_samplers.Unmetered, "contract", "contract.metered"),
        (wrong_samplers.DoubleDrift, "moments", "variance[0]"),
        (wrong_samplers.HalfStuck, "independence", "stuck"),
        (wrong_samplers.AbsoluteDensity, "contract", "contract.constant"),
        (wrong_samplers.OffCentre, "independence", "centre[0]"),
        (wrong_samplers.CancelledVariance, "precision", "energy"),
        (wrong_samplers.MissingJacobian, "invariance on tilted", "far.stein"),
        (wrong_samplers.EndlessAdaptation, "invariance on tilted", "stein"),
        (wrong_samplers.OneWay, "reversibility on tilted", "flow"),
        (wrong_samplers.Boiling, "calibration", "calibrated.rank_spread"),
        (wrong_samplers.UnnormalisedBase, "normaliser", "normaliser"),
        (wrong_samplers.ForgottenWeights, "normaliser", "soon.normaliser"),
        (wrong_samplers.KeptMomentum, "invariance on tilted", "hard.excess"),
    ],
)  # fmt: skip
def test_wrong_samplers_are_red(sampler: Any, question: str, statistic: str) -> None:
    result = checked(sampler, only=question)
    assert result.verdict == "wrong"
    assert any(statistic in t.metric for t in result.red), [t.metric for t in result.red]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("sampler", "question"),
    [
        (wrong_samplers.EndedAdaptation, "invariance on tilted"),
        (wrong_samplers.InvariantOnly, "invariance on tilted"),
        (wrong_samplers.GeneralisedHamiltonian, "invariance on tilted"),
        (wrong_samplers.WeightedMonteCarlo, "normaliser"),
        (wrong_samplers.SequentialMonteCarlo, "normaliser"),
        (wrong_samplers.Metropolis, "reversibility on skewed"),
    ],
)
def test_their_right_versions_are_green(sampler: Any, question: str) -> None:
    result = checked(sampler, only=question)
    assert result.tests
    assert result.verdict == "pass", output.lines(result)


def test_a_claim_decides_the_questions() -> None:
    def titles(exact: Any) -> set[str]:
        return {q.title for q in outside_questions("mala", {}, 100, exact=exact)} & {"invariance", "reversibility"}

    assert titles(None) == titles(True) == {"invariance", "reversibility"}
    assert titles("invariant") == titles("adapted") == {"invariance"}
    assert titles(False) == set()


class LosesChains(wrong_samplers.Langevin):
    """The first of 50 chains of every second replicate is lost."""

    name = "loses-chains"

    def step(self, problem, settings, state, streams):
        x = super().step(problem, settings, state, streams).x.clone()
        lost = torch.tensor(streams.replicates) % 2 == 1
        x[lost, 0] = torch.nan
        return wrong_samplers.ParticleState(x)


def test_lost_chains_are_one_result_of_their_own() -> None:
    result = checked(LosesChains)
    assert {t.metric for t in result.red} == {"diverged"}
    assert "1% of the points are not finite, allowed are 0%" in output.lines(result)[2]
    assert checked(LosesChains, allow_diverged=0.011).verdict == "pass"


class AllLost(wrong_samplers.Langevin):
    name = "all-lost"

    def step(self, problem, settings, state, streams):
        return wrong_samplers.ParticleState(state.x * torch.nan)


def test_where_all_is_lost_nothing_else_is_said() -> None:
    assert {t.metric for t in checked(AllLost).red if t.task == "bent"} == {"diverged"}


def test_what_is_still_on_its_way_has_not_converged() -> None:
    class Slow(wrong_samplers.Langevin):
        name = "slow"
        settings_type = type(
            "S", (wrong_samplers.Settings,), {"__annotations__": {"step_size": float}, "step_size": 5e-4}
        )

    result = checked(Slow)
    assert result.verdict == "not converged", [(t.metric, t.verdict) for t in result.red]


def test_a_human_reads_what_is_wrong_with_which_settings_and_how_to_ask_again(call: Run) -> None:
    ran = call("check", "-a", f"{FILE}:Hot", "--set", "step_size=0.02", "--workers", "0")
    assert ran.code == 1
    prose = [line for line in ran.out.splitlines() if "/" not in line]
    assert all(len(line) <= 80 for line in prose)
    text = " ".join(ran.out.split())
    assert "hot on normal, 500 steps, 50 points, step_size=0.02:" in text
    # log density of a normal law: -D/2, and 0.3 sds of sqrt(D/2) either way
    assert re.search(r"- mean log density: -[23]\.\d+, should be -1\.50 \+- 0\.4", text)
    assert f"source: {FILE}" in text
    again = rf"run again: parvibench check -a {FILE}:Hot -t \w+ --set step_size=0.02 --iterations 500 --seed 1"
    assert re.search(again, text)
    assert re.match(r"wrong: \d\d tests of 1 sampler on 5 targets: ", ran.out.splitlines()[-1])


def test_all_formats_say_the_same() -> None:
    result = replace(checked(wrong_samplers.IgnoresSeed), options={"ignores-seed": "--iterations 500"})
    said = "another seed, same samples: draw from `streams`"
    assert f"- {said}" in " ".join(" ".join(output.lines(result)).split())
    document = json.loads(json.dumps(output.document(result), allow_nan=False))
    assert document["verdict"] == "wrong"
    assert document["groups"][0]["reasons"][0] == said


def test_a_green_run_lists_what_was_asked() -> None:
    said = " ".join(output.lines(checked("ula")))
    for word in ("tested on normal: moments (10), independence (", "tested on tilted: moments (", "contract (10)"):
        assert word in said


def test_the_docs_explain_every_term_of_a_check() -> None:
    """Questions, which a pass prints, and the statistics of failures and documents; a new one is missing here first."""
    page = (Path(__file__).parents[2] / "docs/howto/ci-gate.md").read_text()
    kinds = [*Question.__subclasses__()]
    for kind in kinds:
        kinds += kind.__subclasses__()
    terms = {kind.title for kind in kinds if kind.__module__.startswith("parvibench") and kind.title != "question"}
    terms |= {*words.PROMISES, *words._PREFIXES, *words._NAMES, *words._FAULTS}
    prefixes = "|".join(["contract.", *map(re.escape, words._PREFIXES)])
    terms |= {re.sub(rf"^({prefixes})*|\[.*", "", test.metric) for test in checked("ula").tests}
    assert sorted(term for term in terms if not re.search(rf"(\| |`){re.escape(term.strip())}(`| \|)", page)) == []
