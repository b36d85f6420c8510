"""Contextual bandits: model, games, protocol, and data that grow."""

import math

import pytest
import torch
from few import needs_data
from task_laws import assert_score_is_gradient
from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import linear

from parvibench.core.errors import InputError
from parvibench.core.registry import load_task

BOTH = [pytest.param(n, marks=needs_data(n)) for n in ("bandit-mushroom", "bandit-wheel")]


def played(decisions: int, replicates: int = 2):
    """A small wheel after some decisions, drawn uniformly, with the actions taken."""
    task = load_task("bandit-wheel").with_contexts(300)
    target = task.target(tuple(range(replicates)), "cpu", torch.float64)
    actions = torch.randint(5, (replicates, decisions), generator=torch.Generator().manual_seed(4))
    target.observe(actions)
    return task, target, actions


def states(replicates: int = 2, n: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return 0.3 * torch.randn(replicates, n, 10905, generator=generator, dtype=torch.float64)


def outputs(state: Tensor, contexts: Tensor) -> Tensor:
    """The network of one state (D,) on contexts (n, 2), layer by layer: (n, 5)."""
    for i, (n_in, n_out) in enumerate([(2, 100), (100, 100), (100, 5)]):
        weight, state = state[: n_in * n_out].view(n_in, n_out), state[n_in * n_out :]
        bias, state = state[:n_out], state[n_out:]
        contexts = linear(contexts, weight.T, bias)
        contexts = contexts.relu() if i < 2 else contexts
    return contexts


def test_density_is_prior_times_likelihood_of_the_chosen_actions() -> None:
    """Networks one by one. Catches rewards of other actions, and deviations for variances in the prior."""
    task, target, actions = played(70)
    x = states()
    contexts, rewards = target._game.table.view(2, 300, 2), target._game.rewards
    sds = [(300, 0.1**0.5), (10_100, 0.1**0.5), (505, 10**0.5)]
    scale = torch.cat([torch.full((n,), sd, dtype=torch.float64) for n, sd in sds])
    for r in range(2):
        seen = torch.arange(70)
        reward = rewards[r, seen, actions[r]]
        for i in range(3):
            f = outputs(x[r, i], contexts[r, :70])
            expected = Normal(f[seen, actions[r]], 0.1).log_prob(reward).sum()
            expected = expected + Normal(0.0, scale).log_prob(x[r, i]).sum()
            torch.testing.assert_close(target.log_density(x)[r, i], expected)
    ahead = outputs(x[1, 2], contexts[1, 70:75])
    torch.testing.assert_close(target.values(x, 5)[1, 2], ahead)
    assert task.dim == x.shape[-1]


def test_score_is_the_gradient_in_batches_too() -> None:
    _, target, _ = played(70)
    for rows in (None, torch.randint(70, (2, 32), generator=torch.Generator().manual_seed(1))):
        assert_score_is_gradient(target, states(), rows)


def test_batches_stand_for_all_decisions_so_far() -> None:
    """Ten batches of ten out of one hundred average to the whole. Catches a likelihood scaled by T/B."""
    _, target, _ = played(100)
    batches = torch.arange(100).view(10, 10)
    mean = torch.stack([target.log_density(states(), rows.expand(2, -1)) for rows in batches]).mean(0)
    torch.testing.assert_close(mean, target.log_density(states()))


def test_no_data_no_likelihood() -> None:
    """Before any decision the score is the prior's, also of a problem that wants mini-batches of 512."""
    problem = load_task("bandit-wheel").problem(2, seed=0, particles=2)
    x = problem.init()
    torch.testing.assert_close(problem.score(x), problem.posterior.score(x))
    output_bias = x[0, 0].clone()
    score = problem.score(x + 1)
    torch.testing.assert_close(score[0, 0, -1], -(output_bias[-1] + 1) / 10)
    torch.testing.assert_close(score[0, 0, 0], -(output_bias[0] + 1) / 0.1)


def test_batches_come_from_what_was_seen_and_cost_the_same_ever_after() -> None:
    """Catches contexts of the future in a batch, and the last decisions never drawn."""
    problem = load_task("bandit-wheel").with_contexts(1000).problem(2, seed=0, particles=3)
    problem.posterior.observe(torch.zeros(2, 60, dtype=torch.long))
    rows = []
    for step in range(20):
        problem.streams.step = step
        rows.append(problem._batch())
    drawn = torch.stack(rows)
    assert drawn.shape == (20, 2, 512)
    counts = torch.bincount(drawn.flatten(), minlength=60)
    assert len(counts) == 60
    expected = drawn.numel() / 60
    # Chi-square with 59 degrees of freedom: exceeded by chance once in 10^4.
    assert ((counts - expected) ** 2 / expected).sum() < 107
    problem.score(problem.init())
    assert problem.meter.charged == pytest.approx(3 * 512 / 1000)


@pytest.mark.parametrize("name", BOTH)
def test_games_belong_to_the_replicate(name: str) -> None:
    task = load_task(name)
    both, alone = task.game((3, 8), 100), task.game((8,), 100)
    rows = torch.arange(100).expand(2, -1)
    assert torch.equal(both.contexts(rows)[1], alone.contexts(rows[:1])[0])
    assert torch.equal(both.rewards[1], alone.rewards[0])
    assert not torch.equal(both.rewards[0], both.rewards[1])


def test_the_wheel_by_its_rules() -> None:
    """Shares, means and deviations within 4.5 standard errors. Catches a disc filled by a uniform radius (5% beyond
    0.95 instead of 9.75%), quadrants out of order, and a jackpot for the wrong action."""
    n = 40_000
    game = load_task("bandit-wheel").game((0,), n)
    point, reward, best = game.table, game.rewards[0], game.best[0]
    far = point.norm(dim=-1) >= 0.95
    assert abs(far.double().mean() - 0.0975) < 4.5 * math.sqrt(0.0975 * 0.9025 / n)
    right, up = point[:, 0] > 0, point[:, 1] > 0
    for action, quadrant in enumerate((right & up, right & ~up, ~right & up, ~right & ~up)):
        jackpot = reward[far & quadrant, action]
        assert abs(jackpot.mean() - 50) < 4.5 * 0.01 / math.sqrt(len(jackpot))
        assert torch.equal(best[far & quadrant], jackpot)
        plain = reward[~(far & quadrant), action]
        assert abs(plain.mean() - 1) < 4.5 * 0.05 / math.sqrt(len(plain))
    assert abs(reward[:, 4].mean() - 1.2) < 4.5 * 0.05 / math.sqrt(n)
    assert abs(reward[:, 4].std() - 0.05) < 4.5 * 0.05 / math.sqrt(2 * n)
    assert torch.equal(best[~far], reward[~far, 4])


@pytest.mark.parametrize("name", BOTH[:1])
def test_mushrooms_by_their_rules(name: str) -> None:
    """Catches the classes taken for each other, and the coin tossed over edible mushrooms."""
    n = 20_000
    game = load_task(name).game((0,), n)
    skipped, eaten = game.rewards[0].T
    edible = game.best[0] == 5
    assert not skipped.any()
    assert set(game.best[0].tolist()) == {0.0, 5.0}
    assert abs(edible.double().mean() - 4208 / 8124) < 4.5 * 0.5 / math.sqrt(n)
    assert (eaten[edible] == 5).all()
    assert set(eaten[~edible].tolist()) == {5.0, -35.0}
    assert abs(eaten[~edible].mean() + 15) < 4.5 * 20 / math.sqrt(n / 2)
    assert (game.table.sum(1) == 22).all()


def test_the_protocol_is_the_authors() -> None:
    task = load_task("bandit-wheel")
    steps = task.trainings()
    assert steps[[0, 1, 18, 19, 20, -1]].tolist() == [2000, 1900, 200, 100, 100, 100]
    assert (len(steps), int(steps.sum())) == (39, 22_900)
    assert int(task.with_contexts(50_000).trainings().sum()) == 118_900
    with pytest.raises(InputError, match="contexts must exceed 50"):
        task.with_contexts(50)
