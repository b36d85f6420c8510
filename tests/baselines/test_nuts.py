"""NUTS for many chains: equal to a plain recursive program, exact laws, honest warm-up, resumable."""

import contextlib
import math
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from sampler_toys import Bent, Gaussian, Run, Skewed, make_problem, points
from scipy import stats
from torch import Tensor

from parvibench.baselines._adaptation import catching_up
from parvibench.core.algorithm import take_steps
from parvibench.core.errors import BudgetExhausted
from parvibench.core.registry import load_algorithm
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem
from parvibench.harness.run.compiling import RecordedStep


class Tilted(Target):
    """A correlated Gaussian with a quartic wall."""

    dim = 5

    def __init__(self, seed: int) -> None:
        root = points(5, 5, seed=seed)
        self.precision = root @ root.T / 2 + 0.3 * torch.eye(5, dtype=torch.float64)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        P = self.precision.to(x)
        return -0.5 * ((x @ P) * x).sum(-1) - 0.02 * x.pow(4).sum(-1)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -(self.precision.to(x) @ x.mT).mT - 0.08 * x.pow(3)  # not contiguous


class Funnel(Target):
    """Neal's funnel in three dimensions, with a neck of sd 1 instead of 3."""

    dim = 3

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        v, rest = x[..., 0], x[..., 1:]
        return -0.5 * v.square() - 0.5 * rest.square().sum(-1) * (-v).exp() - v


@dataclass
class Node:
    """A subtree, its ends in the order of time."""

    first: tuple[Any, Any]  # position, momentum
    last: tuple[Any, Any]
    rho: Any
    log_weight: float
    key: float
    draw: Any


class Plain:
    """One row of the sampler as its papers state it: recursion, one leapfrog step at a time, numpy, mass matrix in full.

    Args:
        target: float64.
        step: leapfrog length.
        covariance: the inverse mass.
        factor: of it: a momentum is its inverse transpose times standard normal numbers.
        tape: leaf number -> (gumbel, join, direction); (leaf number, how many trees began in its block) -> normals.
    """

    def __init__(self, target: Any, step: float, factor: Any, tape: Any, max_depth: int) -> None:
        self.target, self.step, self.factor, self.tape, self.max_depth = target, step, factor, tape, max_depth
        self.covariance = factor @ factor.T
        self.leaf, self.accepted, self.known = 0, [], {}

    def density(self, q: Any) -> tuple[float, Any]:
        if q.tobytes() not in self.known:
            density, score = self.target.log_density_and_score(torch.from_numpy(q)[None, None])
            self.known[q.tobytes()] = float(density), score[0, 0].numpy()
        return self.known[q.tobytes()]

    def hamiltonian(self, q: Any, p: Any) -> float:
        return -self.density(q)[0] + 0.5 * p @ self.covariance @ p

    def goes_on(self, a: Any, b: Any, rho: Any) -> bool:
        return bool(a @ self.covariance @ rho > 0 and b @ self.covariance @ rho > 0)

    def joined(self, a: Node, b: Node) -> bool:
        """Whether two neighbouring subtrees, a before b in time, make one that does not turn."""
        return (
            self.goes_on(a.first[1], b.last[1], a.rho + b.rho)
            and self.goes_on(a.first[1], b.first[1], a.rho + b.first[1])
            and self.goes_on(a.last[1], b.last[1], b.rho + a.last[1])
        )

    def build(self, end: tuple[Any, Any], depth: int, sign: int) -> Node | None:
        """A subtree that begins next to ``end``; None where it turns or diverges."""
        if depth == 0:
            q, p = end
            p = p + sign * self.step / 2 * self.density(q)[1]
            q = q + sign * self.step * self.covariance @ p
            p = p + sign * self.step / 2 * self.density(q)[1]
            weight = self.start - self.hamiltonian(q, p)
            self.accepted.append(min(1.0, math.exp(min(weight, 0.0))))
            gumbel = self.tape.gumbel(self.leaf)
            self.leaf += 1
            return None if weight < -1000 else Node((q, p), (q, p), p, weight, weight + gumbel, q)
        near = self.build(end, depth - 1, sign)
        if near is None:
            return None
        far = self.build(near.last if sign > 0 else near.first, depth - 1, sign)
        if far is None:
            return None
        a, b = (near, far) if sign > 0 else (far, near)
        return self.merge(a, b) if self.joined(a, b) else None

    @staticmethod
    def merge(a: Node, b: Node) -> Node:
        best = a if a.key > b.key else b
        return Node(a.first, b.last, a.rho + b.rho, np.logaddexp(a.log_weight, b.log_weight), best.key, best.draw)

    def transition(self, q: Any) -> tuple[Any, int, float]:
        """The next position, the doublings begun, and the mean acceptance."""
        p = np.linalg.solve(self.factor.T, self.tape.normals(self.leaf))
        self.start, self.accepted, depth, sign = self.hamiltonian(q, p), [], 0, 1
        tree = Node((q, p), (q, p), p, 0.0, 0.0, q)
        while depth < self.max_depth:
            branch = self.build(tree.last if sign > 0 else tree.first, depth, sign)
            depth += 1
            if branch is None:
                break
            ended = self.leaf - 1
            draw = branch.draw if self.tape.join(ended) < branch.log_weight - tree.log_weight else tree.draw
            a, b = (tree, branch) if sign > 0 else (branch, tree)
            goes_on, tree = self.joined(a, b), self.merge(a, b)
            tree.draw = draw
            if not goes_on:
                break
            sign = self.tape.direction(ended)
        return tree.draw, depth, float(np.mean(self.accepted))


class Tape:
    """The random numbers of one row, by the number of its leaf; K leaves come in a step of the algorithm."""

    def __init__(self, streams: Streams, replicate: int, row: int, shape: tuple[int, int], leapfrogs: int) -> None:
        self.streams, self.at, self.shape, self.K = streams, (replicate, row), shape, leapfrogs
        self.begun: dict[int, int] = {}

    def _uniform(self, which: int, leaf: int) -> float:
        self.streams.step, k = divmod(leaf, self.K)
        drawn = self.streams.uniform("algorithm", (3, self.K, self.shape[0]))
        return float(drawn[self.at[0], which, k, self.at[1]])

    def gumbel(self, leaf: int) -> float:
        return -math.log(-math.log(self._uniform(0, leaf)))

    def join(self, leaf: int) -> float:
        return math.log(self._uniform(1, leaf))

    def direction(self, leaf: int) -> int:
        return -1 if self._uniform(2, leaf) < 0.5 else 1

    def normals(self, leaf: int) -> Any:
        self.streams.step = leaf // self.K
        number = self.begun.get(self.streams.step, 0)
        self.begun[self.streams.step] = number + 1
        return self.streams.normal("noise", self.shape, index=number)[self.at].numpy()


def fixed(target: Any, step: float, factor: Tensor, replicates: list[int], particles: int, **settings: Any) -> Run:
    """Without warm-up, at this leapfrog length and factor (D, D) of the inverse mass."""
    problem = make_problem(target, replicates, particles=particles)
    run = Run("nuts", problem, warmup_steps=0, **settings)
    dense = settings.get("mass") == "dense"
    scale = (factor if dense else factor.diagonal()).expand(len(replicates), *(factor if dense else factor[0]).shape)
    warmup = run.state.warmup._replace(
        step=torch.full((len(replicates),), step, dtype=torch.float64), scale=scale.contiguous()
    )
    run.state = run.state._replace(warmup=warmup)
    return run


@pytest.mark.parametrize("mass", ["diagonal", "dense"])
@pytest.mark.parametrize(
    ("target", "step", "max_depth", "leapfrogs"),
    [(Tilted(1), 0.2, 6, 5), (Tilted(2), 0.7, 10, 8), (Bent(), 0.12, 7, 3), (Skewed(2), 0.9, 10, 1), (Bent(), 1.6, 5, 8),
     (Gaussian([1.0, 9.0, 0.2], mean=0.4), 0.05, 3, 16)],
    ids=["tilted", "tilted, long steps", "bent", "skewed", "divergent", "deepest trees"],
)  # fmt: skip
def test_it_is_the_plain_recursion(mass: str, target: Any, step: float, max_depth: int, leapfrogs: int) -> None:
    """Positions of 2 x 2 rows, float64, over 100 leaves each; both chains of a row from one start."""
    dim, steps = target.dim, -(-100 // leapfrogs)
    root = points(dim, dim, seed=dim) / 4 + torch.eye(dim, dtype=torch.float64)
    factor = torch.linalg.cholesky(root @ root.T) if mass == "dense" else root.diagonal().abs().diag()
    run = fixed(target, step, factor, [0, 4], 2, mass=mass, max_tree_depth=max_depth, leapfrogs=leapfrogs)
    start = run.state.x.numpy().copy()
    shown, depths, acceptances = [], [], []
    for _ in range(steps):
        run.steps(1)
        numbers = run.state.trees.numbers
        shown.append(run.state.x.numpy().copy())
        depths.append(numbers.doublings.numpy().copy())
        acceptances.append(numbers.acceptance.numpy().copy())
    transitions = 0
    for r in range(2):
        for row in range(2):
            tape = Tape(Streams(7, [0, 4], dtype=torch.float64), r, row, (2, dim), leapfrogs)
            plain = Plain(target, step, factor.numpy(), tape, max_depth)
            moving, waiting, facts = start[r, row], start[r, row], (0, 0.0)
            done = (waiting, facts)
            for after in range(steps):
                while plain.leaf <= (after + 1) * leapfrogs:
                    # ``done`` is shown from its last leaf on.
                    waiting, facts = done
                    if plain.leaf == (after + 1) * leapfrogs:
                        break
                    arrived, *facts_after = plain.transition(moving)
                    moving, done = waiting, (arrived, tuple(facts_after))
                    transitions += 1
                np.testing.assert_allclose(shown[after][r, row], waiting, rtol=1e-8, atol=1e-9)
                np.testing.assert_allclose((depths[after][r, row], acceptances[after][r, row]), facts, rtol=1e-6)
    assert transitions > 4 * 100 / 2**max_depth


@pytest.mark.ci
@pytest.mark.parametrize(
    ("target", "settings"),
    [(Tilted(1), {}), (Skewed(2), {"leapfrogs": 3, "max_tree_depth": 3}), (Bent(), {"mass": "dense"}), (Funnel(), {})],
    ids=["tilted", "shallow trees", "dense", "funnel"],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_compiled_trees_are_the_plain_ones(
    target: Any, settings: dict[str, Any], dtype: torch.dtype, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every number of the state, by a ``native`` density or not; single precision for as long as rounding stays small."""
    if not native:
        monkeypatch.setattr(Problem, "compiled", lambda *_: None)
    problems = [make_problem(target, [0, 4], particles=3, dtype=dtype) for _ in range(2)]
    compiled, plain = (Run("nuts", problem, 80, **settings) for problem in problems)
    compiled.advance = RecordedStep(plain.advance)
    within = {"rtol": 1e-6, "atol": 1e-7} if dtype == torch.float64 else {"rtol": 1e-2, "atol": 1e-3}
    for _ in range(8 if dtype == torch.float64 else 2):
        held = [part.clone() for part in plain.state.trees]
        compiled.steps(5)
        plain.steps(5)
        assert not torch.equal(held[1], plain.state.trees.draws)
        for a, b in zip((*compiled.state.trees, *compiled.info), (*plain.state.trees, *plain.info), strict=True):
            torch.testing.assert_close(a, b, **within)
    assert compiled.problem.meter == plain.problem.meter
    assert (compiled.problem.compiled(compiled.state.trees.total) is not None) is native


def p_values(run: Run, steps: int, functions: Any, expected: Any) -> list[float]:
    """Of expectations over the path, one mean per replicate: Student's t."""
    sums = 0.0
    for _ in range(steps):
        run.steps(1)
        sums = sums + torch.stack([f(run.state.x).mean(1) for f in functions])
    means = (sums / steps).numpy()
    return [stats.ttest_1samp(m, e).pvalue for m, e in zip(means, expected, strict=True)]


FUNNEL = (
    [lambda x: x[..., 0], lambda x: x[..., 0].square(), lambda x: (x[..., 0] > 1).double()],
    [0.0, 1.0, stats.norm.sf(1)],
)


@pytest.mark.ci
def test_the_law_of_the_chains_that_wait_is_exact() -> None:
    """Neal's funnel, 2 rows in 60 replicates, 300 steps: three p > 1e-6, false alarm 3e-6.

    Trees are longer in the mouth: a row that showed the start of the tree that it grows would favour it.
    """
    run = fixed(Funnel(), 0.25, torch.eye(3, dtype=torch.float64), list(range(60)), 2).steps(100)
    assert min(p_values(run, 300, *FUNNEL)) > 1e-6


@pytest.mark.ci
@pytest.mark.parametrize("mass", ["diagonal", "dense"])
def test_warm_up_finds_step_and_scales(mass: str) -> None:
    """Acceptance 0.8 and standard deviations 1, 0.05 and 5, of 3 replicates of 20 chains, from starts too wide or narrow."""
    target = Gaussian([1.0, 400.0, 0.04], mean=1.0)
    problem = make_problem(target, particles=20)
    run = Run("nuts", problem, 4 * 150, mass=mass, leapfrogs=8, max_tree_depth=10).steps(150)
    adapted = run.state.warmup
    accepted = []
    for _ in range(60):
        run.steps(1)
        accepted.append(run.info.acceptance)
    assert torch.stack(accepted).mean().item() == pytest.approx(0.8, abs=0.07)
    assert torch.equal(run.state.warmup.step, adapted.step)
    scale = adapted.scale if mass == "diagonal" else adapted.scale.square().sum(2).sqrt()
    assert (scale / torch.tensor([1.0, 0.05, 5.0])).log().abs().max() < math.log(1.4)


@pytest.mark.parametrize("limit", [400.0, 3000.0])
def test_the_warm_up_ends_when_a_quarter_of_the_budget_is_charged(limit: float) -> None:
    """Catches a warm-up that reaches into the judged half, and one that ends long before."""
    problem = make_problem(Gaussian([1.0, 400.0]), particles=2, limit=limit)
    run = Run("nuts", problem, 10**6, leapfrogs=4)
    charged, lengths = [2.0], []
    with contextlib.suppress(BudgetExhausted):
        while True:
            run.steps(1)
            charged.append(problem.meter.charged)
            lengths.append(run.state.warmup.step.tolist())
    ended = max(i for i in range(1, len(lengths)) if lengths[i] != lengths[i - 1]) + 1
    assert limit / 4 - 2 * 2 * 4 < charged[ended] <= limit / 4
    assert charged[-1] > limit - 2 * 4


def test_a_transition_tells_what_it_did() -> None:
    """A step of ten thousand standard deviations diverges at the first doubling."""
    one = torch.eye(2, dtype=torch.float64)
    run = fixed(Gaussian([1.0, 4.0]), 0.3, one, [0, 1], 3).steps(20)
    assert ((run.info.acceptance > 0.5) & (run.info.acceptance <= 1)).all()
    assert (run.info.divergences == 0).all()
    assert ((run.info.tree_depth >= 1) & (run.info.tree_depth <= 10)).all()
    wild = fixed(Gaussian([1.0, 4.0]), 1e4, one, [0, 1], 3).steps(3)
    assert [field.tolist() for field in wild.info] == [[0.0] * 2, [1.0] * 2, [1.0] * 2]


class Wall(Target):
    """A unit Gaussian with an exponential of an exponential far out, where no common step moves a chain."""

    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -0.5 * x.square().sum(-1) - (3 * x[..., 0] - 9).exp()

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        wall = 3 * (3 * x[..., 0] - 9).exp()
        return -x - torch.stack((wall, torch.zeros_like(wall)), -1)


@pytest.mark.ci
def test_a_chain_that_starts_beyond_a_wall_comes_back_and_spoils_no_other() -> None:
    start = points(1, 50, 2, seed=3)
    start[0, :2, 0] = torch.tensor([12.0, 20.0], dtype=torch.float64)  # scores of 1e12 and 1e22
    streams = Streams(4, (0,), "cpu", torch.float64)
    problem = Problem(Wall(), streams, start=lambda *_: start, particles=50)
    algorithm = load_algorithm("nuts")
    settings = algorithm.make_settings({})
    state = algorithm.init(problem, settings, problem.streams, 400)
    path = [s.x for s, _ in islice(take_steps(algorithm.step, problem, settings, state), 300)]
    x = torch.stack(path[150:])[:, 0]
    assert (x[1:] != x[:-1]).any(2).double().mean(0).min() > 0.1
    assert x[..., 1].square().mean().item() == pytest.approx(1.0, abs=0.15)


def test_the_worst_take_the_places_of_the_best() -> None:
    density = torch.tensor([[-1.0, -5e3, -2.0, -3.0, -9e9], [-1.0, -2.0, -3.0, -4.0, -5.0]])
    acceptance = torch.full_like(density, 0.8)
    place, changed = catching_up(density, acceptance)
    assert place.tolist() == [[0, 2, 2, 3, 0], [0, 1, 2, 3, 4]]
    assert changed.tolist() == [True, False]
    acceptance[1, 2] = 0.0
    assert catching_up(density, acceptance)[0][1].tolist() == [0, 1, 0, 3, 4]
