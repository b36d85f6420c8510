"""Decisions while the sampler runs: when they are made, with what, and what they earn."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import parvibench as pb
from parvibench.core.algorithm import Algorithm, AlgorithmSettings, ParticleState
from parvibench.core.errors import InputError
from parvibench.core.metric import Decisions
from parvibench.core.result import Status
from parvibench.core.sequential import GrowingTarget, SequentialTask
from parvibench.harness.run.thompson import DecisionMaker, RecentPositions
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite

MEANS = torch.tensor([0.0, 0.5, 1.0])


class ArmsTarget(GrowingTarget):
    """Three arms of mean ``MEANS`` and unit noise; their unknown means have prior N(0, 1)."""

    def __init__(self, noise: Tensor) -> None:
        self.dim = self.n_actions = 3
        self.rows = noise.shape[1]
        self.rewards = MEANS.to(noise) + noise
        self.pulls = noise.new_zeros(len(noise), 3)
        self.sums = noise.new_zeros(len(noise), 3)
        self.actions = torch.zeros(len(noise), 0, dtype=torch.long)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        precision = 1 + self.pulls.unsqueeze(1)
        return (self.sums.unsqueeze(1) * x - precision * x.square() / 2).sum(-1)

    def values(self, x: Tensor, count: int) -> Tensor:
        return x.unsqueeze(2).expand(-1, -1, count, -1)

    def observe(self, actions: Tensor) -> None:
        chosen = torch.nn.functional.one_hot(actions, 3)
        now = slice(self.seen, self.seen + actions.shape[1])
        self.pulls = self.pulls + chosen.sum(1)
        self.sums = self.sums + (chosen * self.rewards[:, now]).sum(1)
        self.actions = torch.cat((self.actions, actions), 1)
        self.seen += actions.shape[1]

    @property
    def taken(self) -> Tensor:
        return self.actions

    def decisions(self) -> Decisions:
        """Earnings in expectation: without the noise of the rewards."""
        best = torch.full(self.taken.shape, 1.0, dtype=torch.float64)
        return Decisions(MEANS.double()[self.taken], best, torch.full_like(best, 0.5))


@dataclass(frozen=True, kw_only=True)
class Arms(SequentialTask):
    """A Gaussian bandit without contexts, small enough to know everything about."""

    def target(self, replicates, device, dtype):
        g = [torch.Generator().manual_seed(900 + r) for r in replicates]
        return ArmsTarget(torch.stack([torch.randn(self.rows, 3, generator=h) for h in g]).to(dtype))

    def initial(self, target, n, generators):
        return torch.stack([torch.randn(n, 3, generator=g) for g in generators])


ARMS = Arms(
    name="arms", summary="three arms", dim=3, tags=frozenset(), citation="",
    provides=frozenset({"score", "decisions"}), particles=50, rows=400, period=20,
)  # fmt: skip


class Truth(Algorithm[AlgorithmSettings, ParticleState]):
    """Exact draws from the posterior as it is now: what a perfect sampler does."""

    name = "truth"
    kind = "generator"
    needs = frozenset({"score"})
    settings_type = AlgorithmSettings

    def init(self, problem, settings, streams, horizon):
        return ParticleState.start(problem)

    def step(self, problem, settings, state, streams):
        problem.score(state.x)
        return state

    def output(self, problem, settings, state, n, streams):
        arms = problem.posterior
        precision = (1 + arms.pulls).unsqueeze(1)
        noise = streams.normal("output", (n, 3)).to(precision)
        return arms.sums.unsqueeze(1) / precision + noise * precision.rsqrt()


def play(tmp_path: Path, *algorithms, replicates: int, **options):
    return pb.run(
        tasks=[ARMS], algorithms=list(algorithms), replicates=replicates, out=tmp_path, tracking=False, workers=0,
        **{"budget": {"iterations": 400}, **options},
    )  # fmt: skip


def regrets(results, label: str) -> Tensor:
    cell = next(c for c in results.cells if c.label == label)
    assert cell.status is Status.OK, cell.reason
    return torch.tensor(cell.values["regret_percent"], dtype=torch.float64)


@pytest.mark.ci
def test_good_samplers_learn_and_the_start_does_not(tmp_path: Path) -> None:
    """Thompson sampling with the start's symmetric samples is the uniform policy, 100% but for the luck of its 50
    samples: 12.5% in a replicate, 4.4% in the mean of eight. With exact draws, and with Langevin chains on the
    growing posterior (measured: 12.4%, sd 6.2%), the best arm wins.

    Catches decisions on samples of another time or replicate, and a posterior that does not grow.
    """
    options = {"budget": {"iterations": 200}, "settings": {"sgld": {"step_size": 3e-3}}}
    results = play(tmp_path, Truth(), "sgld", "initial", replicates=8, **options)
    assert abs(regrets(results, "initial").mean() - 100) < 20
    for label in ("truth", "sgld"):
        assert regrets(results, label).mean() < 30
    assert (regrets(results, "truth") < 50).all()


def test_regret_is_measured_along_the_contexts(tmp_path: Path) -> None:
    """Checkpoints lie at shares of the decisions, whichever budget pays for them; regret adds up."""
    for budget in ({"iterations": 400}, {"score_evaluations": 20_000}):
        results = play(tmp_path / next(iter(budget)), Truth(), replicates=2, budget=budget)
        curve = results.curves.query("replicate == 1")
        contexts = curve.query("metric == 'contexts'")["value"].tolist()
        assert contexts == [20, 40, 100, 200, 400] or contexts == [20, 20, 40, 100, 200, 400]
        assert curve.query("metric == 'regret'")["value"].is_monotonic_increasing
        assert results.cells[0].score_evaluations == 400 * 50


def test_decisions_wait_for_their_share_of_the_budget() -> None:
    """The protocol's steps as shares. Catches blocks that come a training early or late."""
    maker = DecisionMaker(ARMS, ARMS.problem(1, seed=0))
    steps = ARMS.trainings().tolist()
    assert len(steps) == 19
    samples = torch.zeros(1, 4, 3)
    total, spent = sum(steps), 0
    for block, needed in enumerate([0, *steps]):
        spent += needed
        assert maker.progress == block / 20
        if block:
            assert not maker.due((spent - 1) / total)
        assert maker.due(spent / total)
        maker.decide(samples)
    assert maker.progress == 1
    assert not maker.due(1.0)


def test_actions_are_first_tried_in_turn_then_chosen() -> None:
    """Samples that believe in arm 1 or in arm 2 are taken alike: 95% of 14 + 380 choices within 4.5 sd of half."""
    problem = ARMS.problem(2, seed=5)
    maker = DecisionMaker(ARMS, problem)
    believers = torch.tensor([[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]).expand(2, -1, -1)
    while maker.due(1.0):
        maker.decide(believers)
    taken = problem.posterior.taken
    assert taken[:, :6].tolist() == [[0, 1, 2, 0, 1, 2]] * 2
    assert set(taken[:, 6:].flatten().tolist()) == {1, 2}
    share = (taken[:, 6:] == 1).double().mean(1)
    assert ((share - 0.5).abs() < 4.5 * 0.5 / 394**0.5).all()
    assert not torch.equal(taken[0], taken[1])


def test_a_single_chain_gives_its_last_positions() -> None:
    recent = RecentPositions(torch.zeros(2, 1, 3), n=4, every=10)
    torch.testing.assert_close(recent.samples(4), torch.zeros(2, 4, 3))
    for step in range(1, 71):
        recent.add(step, torch.full((2, 1, 3), float(step)))
    assert recent.samples(4)[0, :, 0].tolist() == [70, 60, 50, 40]
    several = RecentPositions(torch.zeros(1, 3, 1), n=5, every=1)
    for step in range(1, 5):
        several.add(step, torch.arange(3.0).view(1, 3, 1) + 10 * step)
    assert several.samples(5).flatten().tolist() == [40, 41, 42, 30, 31]


def test_a_replicate_is_the_same_in_any_batch(tmp_path: Path) -> None:
    """A replicate's decisions do not depend on its neighbours in the batch; single chains run in one batch."""
    options = {"budget": {"iterations": 60}, "settings": {"srld": {"step_size": 3e-3, "memory": 2}}}
    three, two = (play(tmp_path / str(n), "srld", replicates=n, **options) for n in (3, 2))
    assert (three.cells[0].spec.chunk, two.cells[0].spec.chunk) == (3, 2)
    assert regrets(three, "srld")[:2].tolist() == regrets(two, "srld").tolist()


def test_contexts_are_the_suites() -> None:
    """They name cells of sequential tasks, leave other cells alone, and are refused when too few."""
    tasks, budget = ["bandit-wheel", "banana"], {"iterations": 9}
    plain = {"name": "x", "tasks": tasks, "algorithms": ["svgd"], "budget": budget}
    default, short = (expand(Suite.model_validate({**plain, **more})) for more in ({}, {"contexts": 120}))
    assert default[0].key != short[0].key
    assert default[1].key == short[1].key
    assert (default[0].load()[0].rows, short[0].load()[0].rows) == (2000, 120)
    with pytest.raises(InputError, match="contexts must exceed 50"):
        expand(Suite.model_validate({**plain, "contexts": 50}))


def test_a_bandit_from_a_suite_file(tmp_path: Path) -> None:
    suite = tmp_path / "mine.yaml"
    suite.write_text(
        "name: mine\ntasks: [bandit-wheel]\nreplicates: 2\nparticles: 3\nbudget: {iterations: 9}\n"
        "algorithms: [{name: srld, settings: {preset: bandit-wheel}}, initial]\n"
        "profiles: {tiny: {contexts: 130}, large: {contexts: 5000}}\n"
    )
    results = pb.run(str(suite), workers=0, out=tmp_path / "store", tracking=False)
    for cell in results.cells:
        assert cell.values["contexts"] == [130, 130]
        assert all(0 < v < 300 for v in cell.values["regret_percent"])
    assert results.cells[0].score_evaluations == pytest.approx(9)
