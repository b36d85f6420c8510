"""Contextual bandits: networks that learn from the rewards of their own decisions.

Riquelme, Tucker & Snoek (2018), arXiv:1802.09127, Sections 5.2 and 5.4; settings of Ye, Ren & Liu (2020),
arXiv:2002.09070, Section 6.3 and code. In each of T contexts c an action is chosen by Thompson sampling and its reward
r is seen, no other's. Model, a network f with two hidden layers of 100 ReLU units and K outputs:

    r ~ N(f_w(c)_action, 0.1^2),   w ~ N(0, 10 / H) into a hidden layer of H units, N(0, 10) into the outputs

(variances; the same for biases). State: layer by layer the weights (inputs x outputs, row-major), then the biases.

Mushroom: 117 indicators of the 22 attributes of a mushroom drawn with replacement. Not eating earns 0; eating an edible
one +5, a poisonous one +5 or -35 with equal chance. The best reward is what the better action earns in expectation: 5
or 0.

Wheel: a point of the unit disc. Action 4 earns N(1.2, 0.05^2), the others N(1, 0.05^2), but beyond the radius 0.95
(9.75% of the points) the action of the quadrant, 0 to 3 for (+,+), (+,-), (-,+), (-,-), earns N(50, 0.01^2). The best
reward is the realised one of the best action.

Protocol: each action twice in turn; from then on, every 50 contexts, a training on all decisions so far with
mini-batches of 512 drawn with replacement, 2000 steps falling evenly to 100 over the first 20 trainings and 100 from
then on. Shares of the budget take the place of these numbers, so the authors' protocol is a budget of as many
iterations as they sum to: 22,900 for 2000 contexts, 118,900 for 50,000.

Departures: the uniform policy of ``regret_percent`` earns the mean over the actions, where the authors run one; the
code's start is in a module that it lacks: ours is w ~ N(0, 1 / (inputs + 1)), biases 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Generator, Tensor

from parvibench.core.metric import Decisions
from parvibench.core.sequential import GrowingTarget, SequentialTask
from parvibench.core.streams import derive_seed
from parvibench.core.target import Target
from parvibench.data.loaders import load
from parvibench.nn.mlp import MLP

_HIDDEN = 100
_NOISE = 0.1
_PRIOR_VARIANCE = 10.0
_RADIUS = 0.95


@dataclass(frozen=True)
class Game:
    """Contexts and potential rewards of a batch of replicates."""

    table: Tensor  #: (M, p) features
    index: Tensor  #: (R, T) row of ``table`` of each context
    rewards: Tensor  #: (R, T, K) of every action
    best: Tensor  #: (R, T) reward that a player who knows the rules would count on

    def contexts(self, rows: Tensor) -> Tensor:
        """Features (R, B, p) of contexts (R, B)."""
        return self.table[self.index.gather(1, rows)]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Game:
        """The same on another device and in another floating type."""
        table, rewards, best = (t.to(device, dtype) for t in (self.table, self.rewards, self.best))
        return Game(table, self.index.to(device), rewards, best)


class BanditTarget(GrowingTarget):
    """The posterior of the network given the rewards seen; the game is in dtype and on the device of the states."""

    def __init__(self, network: MLP, game: Game) -> None:
        self.dim = network.n_parameters
        self.rows, self.n_actions = game.rewards.shape[1:]
        self._network, self._game = network, game
        self._taken = torch.zeros_like(game.index)
        variances = [_PRIOR_VARIANCE / n for n in network.sizes[1:-1]] + [_PRIOR_VARIANCE]
        self._precision = 1 / per_parameter(network, variances, variances).to(game.table)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log of likelihood times prior in nats: (R, N, D) -> (R, N)."""
        residual, _, scale = self._residuals(x, batch)
        normaliser = math.log(_NOISE) + 0.5 * math.log(2 * math.pi)
        fit = -scale * (residual / _NOISE).square().sum(-1) / 2 - self.seen * normaliser
        prior = (self._precision / (2 * math.pi)).log().sum() - (self._precision * x.square()).sum(-1)
        return fit + prior / 2

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient (R, N, D) -> (R, N, D): by hand, or by autograd where it is to be differentiated."""
        if x.requires_grad and torch.is_grad_enabled():
            return super().score(x, batch)
        residual, (layers, actions), scale = self._residuals(x, batch)
        pull = (scale / _NOISE**2) * residual.flatten(0, 1).unsqueeze(-1)  # of the chosen outputs
        pull = torch.zeros_like(layers[-1]).scatter_(-1, actions.flatten(0, 1), pull)
        fit = self._network.backward(x.flatten(0, 1), layers, pull).view_as(x)
        return fit.sub_(self._precision * x)

    def values(self, x: Tensor, count: int) -> Tensor:
        """Expected rewards of all actions in the next ``count`` contexts: (R, n, D) -> (R, n, count, K)."""
        rows = torch.arange(self.seen, self.seen + count, device=x.device).expand(len(x), -1)
        return self._forward(x, rows)[-1].view(*x.shape[:2], count, self.n_actions)

    def observe(self, actions: Tensor) -> None:
        """Take these actions in the next contexts, (R, count) indices."""
        self._taken[:, self.seen : self.seen + actions.shape[1]] = actions
        self.seen += actions.shape[1]

    @property
    def taken(self) -> Tensor:
        """The actions taken so far, (R, seen) indices."""
        return self._taken[:, : self.seen]

    def decisions(self) -> Decisions:
        """What the decisions so far have earned, (R, seen)."""
        rewards = self._game.rewards[:, : self.seen]
        reward = rewards.gather(-1, self.taken.unsqueeze(-1)).squeeze(-1)
        return Decisions(reward, self._game.best[:, : self.seen], rewards.mean(-1))

    def _residuals(self, x: Tensor, batch: Tensor | None) -> tuple[Tensor, tuple[list[Tensor], Tensor], float]:
        """r - f (R, N, B) in the contexts ``batch``, the layers and actions (R, N, B, 1) behind it, and seen/B."""
        rows = batch
        if rows is None:
            rows = torch.arange(self.seen, device=x.device).expand(len(x), -1)
        layers = self._forward(x, rows)
        taken = self._taken.gather(1, rows).unsqueeze(-1)  # (R, B, 1)
        reward = self._game.rewards[torch.arange(len(x), device=x.device).unsqueeze(-1), rows].gather(-1, taken)
        actions = taken.unsqueeze(1).expand(-1, x.shape[1], -1, -1)
        outputs = layers[-1].view(*x.shape[:2], *layers[-1].shape[1:])
        residual = (reward.unsqueeze(1) - outputs.gather(-1, actions)).squeeze(-1)
        return residual, (layers, actions), self.seen / max(1, rows.shape[1])

    def _forward(self, x: Tensor, rows: Tensor) -> list[Tensor]:
        """All layers of the R N networks in contexts (R, B)."""
        contexts = self._game.contexts(rows).unsqueeze(1).expand(-1, x.shape[1], -1, -1)
        return self._network.forward(x.flatten(0, 1), contexts.flatten(0, 1))


@dataclass(frozen=True, kw_only=True)
class BanditTask(SequentialTask):
    """A contextual bandit played by Thompson sampling with a Bayesian network.

    Every 50 contexts the sampler goes on, on the rewards seen so far; then each of the next 50 decisions takes one
    of the samples and the action that is best if it is true. Samples are the particles, fresh draws of a generator,
    or the last positions of the chains, 100 steps apart in the authors' protocol. Regret is the reward missed
    against the best actions; the uniform policy's is 100 percent. Algorithms that need exact scores are not
    supported: what they keep of one posterior does not hold on the next.
    """

    features: int  #: p
    game: Callable[[Sequence[int], int], Game]  #: contexts and rewards of the replicates, given their ids and T
    actions: int  #: K

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> BanditTarget:
        """The posterior before any decision, that is the prior, bound to each replicate's game."""
        game = self.game(replicates, self.rows)
        return BanditTarget(network(self.features, self.actions), game.to(device, dtype))

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Weights from N(0, 1 / (inputs + 1)), biases 0: (R, n, D) float64."""
        shape = network(self.features, self.actions)
        spread = per_parameter(shape, [1 / math.sqrt(n_in + 1) for n_in in shape.sizes[:-1]], [0.0] * 3)
        draws = [torch.randn(n, self.dim, generator=g, dtype=torch.float64) for g in generators]
        return torch.stack(draws) * spread


def network(features: int, actions: int) -> MLP:
    """Two hidden layers of 100 ReLU units."""
    return MLP((features, _HIDDEN, _HIDDEN, actions), "relu")


def per_parameter(shape: MLP, weights: Sequence[float], biases: Sequence[float]) -> Tensor:
    """One value per layer for its weights and one for its biases, spread over the parameters: (D,) float64."""
    layers = zip(pairwise(shape.sizes), weights, biases, strict=True)
    parts = [
        part
        for (n_in, n_out), weight, bias in layers
        for part in (torch.full((n_in * n_out,), weight), torch.full((n_out,), bias))
    ]
    return torch.cat(parts).double()


def _mushroom(replicates: Sequence[int], contexts: int) -> Game:
    table = load("mushroom")
    features, edible = torch.from_numpy(table.X.copy()), torch.from_numpy(table.y.copy()) == 1
    rows, rewards = [], []
    for r in replicates:
        generator = _generator("mushroom", r)
        picked = torch.randint(len(features), (contexts,), generator=generator)
        harmless = torch.rand(contexts, generator=generator, dtype=torch.float64) < 0.5
        eaten = torch.where(edible[picked] | harmless, 5.0, -35.0).double()
        rows.append(picked)
        rewards.append(torch.stack((torch.zeros_like(eaten), eaten), -1))
    index = torch.stack(rows)
    return Game(features, index, torch.stack(rewards), 5.0 * edible[index].double())


def _wheel(replicates: Sequence[int], contexts: int) -> Game:
    points, rewards = [], []
    for r in replicates:
        generator = _generator("wheel", r)
        radius, turn = torch.rand(2, contexts, generator=generator, dtype=torch.float64)
        angle = 2 * math.pi * turn
        points.append(radius.sqrt().unsqueeze(-1) * torch.stack((angle.cos(), angle.sin()), -1))
        noise = torch.randn(contexts, 5, generator=generator, dtype=torch.float64)
        far, quadrant = _far(points[-1])
        reward = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.2], dtype=torch.float64) + 0.05 * noise
        jackpot = far.unsqueeze(-1) & (torch.arange(5) == quadrant.unsqueeze(-1))
        rewards.append(torch.where(jackpot, 50 + 0.01 * noise, reward))
    game = torch.stack(rewards)
    table = torch.cat(points)
    far, quadrant = _far(table.view(len(points), contexts, 2))
    best = game.gather(-1, torch.where(far, quadrant, 4).unsqueeze(-1)).squeeze(-1)
    return Game(table, torch.arange(len(table)).view(len(points), contexts), game, best)


def _far(points: Tensor) -> tuple[Tensor, Tensor]:
    """Which points lie beyond the radius, and the quadrant of every point."""
    return points.norm(dim=-1) >= _RADIUS, 2 * (points[..., 0] <= 0) + (points[..., 1] <= 0).long()


def _generator(game: str, replicate: int) -> Generator:
    return Generator().manual_seed(derive_seed("bandit", game, replicate))


def _task(
    name: str, summary: str, features: int, actions: int, game: Callable[[Sequence[int], int], Game], data: str = ""
) -> BanditTask:
    return BanditTask(
        name=name,
        summary=summary,
        dim=network(features, actions).n_parameters,
        tags=frozenset({"bandit", "network", "sequential", "srld"}),
        citation="Riquelme, Tucker & Snoek (2018), arXiv:1802.09127; Ye, Ren & Liu (2020), arXiv:2002.09070, Section 6.3",
        provides=frozenset({"score", "hvp", "data", "decisions"}),
        particles=20,
        batch_size=512,
        rows=2000,
        data=tuple(data.split()),
        game=game,
        features=features,
        actions=actions,
    )


MUSHROOM = _task("bandit-mushroom", "eat a mushroom or not; network on 117 indicators", 117, 2, _mushroom, "mushroom")
WHEEL = _task("bandit-wheel", "five actions on a disc, a rare large reward at its rim; network", 2, 5, _wheel)
