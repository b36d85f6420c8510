"""Wrong samplers as a contributor might hand them in: each is a textbook method with one mistake."""

import math
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, ParticleState, SteppedSettings


class Settings(SteppedSettings):
    step_size: float = Field(0.01, gt=0, description="eta")


class LeapfrogSettings(Settings):
    leapfrog_steps: int = Field(10, ge=1, description="L")


class Known(NamedTuple):
    x: Tensor  # (R, N, D)
    log_density: Tensor  # (R, N)
    score: Tensor  # (R, N, D)


class WithMomentum(NamedTuple):
    x: Tensor  # (R, N, D)
    v: Tensor  # (R, N, D)


class Langevin(Algorithm[Any, Any]):
    """The right one, x + eta s(x) + sqrt(2 eta) xi, in parts to spoil."""

    name, kind, settings_type = "langevin", "chains", Settings

    def init(self, problem, settings, streams, horizon):
        return ParticleState(problem.init())

    def step(self, problem, settings, state, streams):
        x, eta = state.x, settings.step_size
        return ParticleState(x + eta * self.drift(problem, x) + math.sqrt(2 * eta) * self.noise(streams, x))

    def drift(self, problem, x):
        return problem.score(x)

    def noise(self, streams, x):
        return streams.normal("noise", x.shape[1:])


class Metropolis(Algorithm[Any, Any]):
    """The right MALA, in parts to spoil."""

    name, kind, settings_type = "metropolis", "chains", Settings
    exact: ClassVar[bool | None] = True

    def init(self, problem, settings, streams, horizon):
        x = problem.init()
        return Known(x, *problem.log_density_and_score(x))

    def step(self, problem, settings, state, streams):
        x, eta = state.x, settings.step_size
        y = x + eta * state.score + math.sqrt(2 * eta) * streams.normal("noise", x.shape[1:])
        log_density, score = problem.log_density_and_score(y)
        new = Known(y, log_density, score)
        forward = -(y - x - eta * state.score).square().sum(-1) / (4 * eta)
        backward = -(x - y - eta * score).square().sum(-1) / (4 * eta)
        log_ratio = self.log_ratio(log_density - state.log_density, backward - forward)
        accept = streams.uniform("algorithm", x.shape[1:2]).log() < log_ratio
        return self.moved(accept, state, new)

    def log_ratio(self, densities, proposals):
        return densities + proposals

    def moved(self, accept, old, new):
        move = accept[..., None]
        return Known(
            torch.where(move, new.x, old.x),
            torch.where(accept, new.log_density, old.log_density),
            torch.where(move, new.score, old.score),
        )


class Hamiltonian(Algorithm[Any, Any]):
    """The right HMC, in parts to spoil."""

    name, kind, settings_type = "hamiltonian", "chains", LeapfrogSettings
    exact: ClassVar[bool | None] = True
    last_kick: ClassVar[float] = 0.5
    kinetic: ClassVar[float] = 0.5

    def init(self, problem, settings, streams, horizon):
        return ParticleState(problem.init())

    def step(self, problem, settings, state, streams):
        x = state.x
        eps = math.sqrt(2 * settings.step_size)
        start, score = problem.log_density_and_score(x)
        p0 = self.momentum(streams, x)
        y, p = x, p0 + 0.5 * eps * score
        for i in range(settings.leapfrog_steps):
            y = y + eps * p
            log_density, score = problem.log_density_and_score(y)
            p = p + (eps if i < settings.leapfrog_steps - 1 else self.last_kick * eps) * score
        log_ratio = log_density - start + self.kinetic * (p0.square() - p.square()).sum(-1)
        accept = streams.uniform("algorithm", x.shape[1:2]).log() < log_ratio
        return ParticleState(torch.where(accept[..., None], y, x))

    def momentum(self, streams, x):
        return streams.normal("noise", x.shape[1:])


class RejectedScore(Metropolis):
    """The proposal's score is kept after a rejection too."""

    name = "rejected-score"

    def moved(self, accept, old, new):
        return super().moved(accept, old, new)._replace(score=new.score)


class WholeLastKick(Hamiltonian):
    """The last kick of a trajectory is a whole one."""

    name, last_kick = "whole-last-kick", 1.0


class IgnoresSeed(Langevin):
    """The noise depends on replicate and step alone."""

    name = "ignores-seed"

    def noise(self, streams, x):
        rows = [
            torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(1000 * r + streams.step), dtype=x.dtype)
            for r in streams.replicates
        ]
        return torch.stack(rows)


class SharedNoise(Langevin):
    """One noise for all chains."""

    name = "shared-noise"

    def noise(self, streams, x):
        return streams.normal("noise", (1, x.shape[2]))


class SortedCoordinates(Langevin):
    """Every coordinate of the samples is sorted."""

    name, kind = "sorted-coordinates", "particles"

    def output(self, problem, settings, state, n, streams):
        return state.x.sort(dim=1).values


class DuplicatedPoints(Langevin):
    """Half of the points are copies of the other half."""

    name, kind = "duplicated-points", "particles"

    def output(self, problem, settings, state, n, streams):
        half = state.x[:, : (n + 1) // 2]
        return torch.cat([half, half], 1)[:, :n]


class ExactDraws(Langevin):
    """Independent draws from the target itself, however it is given: by an exact sampler, or by known moments."""

    name = "exact-draws"

    def step(self, problem, settings, state, streams):
        return ParticleState(self._drawn(problem._target, state.x, streams))

    @staticmethod
    def _drawn(target, x, streams):
        from parvibench.checks.targets import STABLE

        target = getattr(target, "_target", target)
        generators = streams.generators("algorithm", streams.step)
        if hasattr(target, "_mean"):
            root = torch.linalg.inv(target._inverse).T
            rows = [
                torch.randn(x.shape[1:], generator=g, dtype=torch.float64) @ root + target._mean for g in generators
            ]
        else:
            rows = [STABLE["bent"].exact(x.shape[1], g) for g in generators]
        return torch.stack(rows).to(x.dtype)


class DoubleDrift(Langevin):
    """The 1/2 of the drift is missing."""

    name = "double-drift"

    def drift(self, problem, x):
        return 2 * problem.score(x)


class Hot(Langevin):
    """Temperature 2."""

    name = "hot"

    def noise(self, streams, x):
        return math.sqrt(2) * super().noise(streams, x)


class HalfStuck(Langevin):
    """Half of the chains never move."""

    name = "half-stuck"

    def step(self, problem, settings, state, streams):
        x = super().step(problem, settings, state, streams).x
        x = x.clone()
        x[:, ::2] = state.x[:, ::2]
        return ParticleState(x)


class FromNeighbour(Langevin):
    """Every replicate goes on from the state of the one before it."""

    name = "from-neighbour"

    def step(self, problem, settings, state, streams):
        return super().step(problem, settings, ParticleState(state.x.roll(1, 0)), streams)


class SharedReplicates(Langevin):
    """All replicates have the first one's noise."""

    name = "shared-replicates"

    def noise(self, streams, x):
        g = streams.generators("noise", streams.step)[0]
        seeded = torch.Generator().manual_seed(g.initial_seed() - 0 if streams.replicates[0] == 0 else streams.step)
        return torch.randn(x.shape[1:], generator=seeded, dtype=x.dtype).expand_as(x)


class GlobalNoise(Langevin):
    """Noise from the global generator."""

    name = "global-noise"

    def noise(self, streams, x):
        return torch.randn_like(x)


class Unmetered(Langevin):
    """Every other score is asked of the target behind the meter."""

    name = "unmetered"

    def drift(self, problem, x):
        return 0.5 * (problem.score(x) + problem._target.score(x))


class InPlace(Langevin):
    """The state a caller may hold is changed."""

    name = "in-place"

    def step(self, problem, settings, state, streams):
        x = super().step(problem, settings, state, streams).x
        state.x.copy_(x)
        return ParticleState(state.x)


class AbsoluteDensity(Metropolis):
    """The density at the old position is forgotten."""

    name = "absolute-density"

    def step(self, problem, settings, state, streams):
        return super().step(problem, settings, state._replace(log_density=0 * state.log_density), streams)


class OffCentre(Langevin):
    """The noise has a mean of 0.05."""

    name = "off-centre"

    def noise(self, streams, x):
        return super().noise(streams, x) + 0.05


class CancelledVariance(Langevin):
    """Preconditioned by the variance of the chains, as a difference of two means of squares."""

    name = "cancelled-variance"

    def step(self, problem, settings, state, streams):
        x = state.x
        variance = (x.square().mean(1) - x.mean(1).square()).clamp(min=1e-9, max=1.0)[:, None]
        eta = 4 * settings.step_size * variance
        return ParticleState(x + eta * problem.score(x) + (2 * eta).sqrt() * self.noise(streams, x))


class MissingJacobian(Metropolis):
    """Multiplies all coordinates by a random factor, and forgets its power of D in the ratio."""

    name = "missing-jacobian"

    def step(self, problem, settings, state, streams):
        factor = (0.3 * streams.normal("noise", state.x.shape[1:2])).exp()
        new = Known(state.x * factor[..., None], *problem.log_density_and_score(state.x * factor[..., None]))
        accept = streams.uniform("algorithm", state.x.shape[1:2]).log() < new.log_density - state.log_density
        return self.moved(accept, state, new)


class Adaptive(NamedTuple):
    x: Tensor  # (R, N, D)
    square: Tensor  # (R, N) of recent positions
    t: int


class EndlessAdaptation(Algorithm[Any, Any]):
    """The steps of every chain follow its own recent positions, without an end."""

    name, kind, settings_type = "endless-adaptation", "chains", Settings
    exact: ClassVar[Any] = "adapted"
    until: ClassVar[float] = math.inf

    def init(self, problem, settings, streams, horizon):
        x = problem.init()
        return Adaptive(x, x.square().mean(-1), 0)

    def step(self, problem, settings, state, streams):
        x = state.x
        y = x + state.square.sqrt()[..., None] * streams.normal("noise", x.shape[1:])
        ratio = problem.log_density(y) - problem.log_density(x)
        accept = streams.uniform("algorithm", x.shape[1:2]).log() < ratio
        x = torch.where(accept[..., None], y, x)
        square = state.square.lerp(x.square().mean(-1), 0.5) if state.t < self.until else state.square
        return Adaptive(x, square.clamp(min=0.01), state.t + 1)


class EndedAdaptation(EndlessAdaptation):
    """The right one: adaptation ends after 200 steps."""

    name, until = "ended-adaptation", 200


class OneWay(Algorithm[Any, Any]):
    """Coordinates are updated one after another: invariant, and claimed to be reversible."""

    name, kind, settings_type = "one-way", "chains", Settings
    exact: ClassVar[Any] = True

    def init(self, problem, settings, streams, horizon):
        return ParticleState(problem.init())

    def step(self, problem, settings, state, streams):
        x = state.x
        for d in range(x.shape[2]):
            y = x.clone()
            y[..., d] += 4 * math.sqrt(2 * settings.step_size) * streams.normal("noise", x.shape[1:2], d)
            ratio = problem.log_density(y) - problem.log_density(x)
            accept = streams.uniform("algorithm", x.shape[1:2], d).log() < ratio
            x = torch.where(accept[..., None], y, x)
        return ParticleState(x)


class InvariantOnly(OneWay):
    """The right one: it claims invariance alone."""

    name, exact = "invariant-only", "invariant"


class Annealed(NamedTuple):
    x: Tensor  # (R, N, D)
    log_z: Tensor  # (R,)
    t: int
    end: int


class Normalised(NamedTuple):
    log_z: Tensor  # (R,)


class SequentialMonteCarlo(Algorithm[Any, Any]):
    """The right one: a geometric path from N(0, I), resampling at every temperature, a random walk."""

    name, kind, settings_type = "sequential", "particles", Settings

    def init(self, problem, settings, streams, horizon):
        x = streams.normal("init", (problem.particles, problem.dim))
        return Annealed(x, x.new_zeros(len(x)), 0, horizon)

    def step(self, problem, settings, state, streams) -> tuple[Annealed, Normalised]:
        x, b = state.x, (state.t + 1) / state.end
        log_w = (problem.log_density(x) - self.base(x)) / state.end
        log_z = state.log_z + log_w.logsumexp(1) - math.log(x.shape[1])
        u = (torch.arange(x.shape[1]) + streams.uniform("algorithm", (1,))) / x.shape[1]
        taken = torch.searchsorted(log_w.softmax(1).cumsum(1), u).clamp(max=x.shape[1] - 1)
        x = x.gather(1, taken[..., None].expand_as(x))
        for k in range(3):
            y = x + 0.4 * streams.normal("noise", x.shape[1:], k)
            rise = b * (problem.log_density(y) - problem.log_density(x)) + (1 - b) * (self.base(y) - self.base(x))
            x = torch.where((streams.uniform("algorithm", x.shape[1:2], 1 + k).log() < rise)[..., None], y, x)
        return Annealed(x, log_z, state.t + 1, state.end), Normalised(log_z)

    def base(self, x):
        return -0.5 * (x.square() + math.log(2 * math.pi)).sum(-1)


class UnnormalisedBase(SequentialMonteCarlo):
    """The base is not normalised."""

    name = "unnormalised-base"

    def base(self, x):
        return -0.5 * x.square().sum(-1)


class Boiling(Langevin):
    """Temperature 4."""

    name = "boiling"

    def noise(self, streams, x):
        return 2 * super().noise(streams, x)


class Weighted(NamedTuple):
    x: Tensor  # (R, N, D)
    log_w: Tensor  # (R, N)
    log_z: Tensor  # (R,)
    t: int
    end: int


class Tempered(NamedTuple):
    log_z: Tensor  # (R,)
    inverse_temperature: Tensor  # (R,)


class WeightedMonteCarlo(SequentialMonteCarlo):
    """The right one: weights are carried from one temperature to the next, and resampled at every third."""

    name = "weighted-sequential"

    def init(self, problem, settings, streams, horizon):
        x = streams.normal("init", (problem.particles, problem.dim))
        return Weighted(x, torch.full_like(x[..., 0], -math.log(x.shape[1])), x.new_zeros(len(x)), 0, horizon)

    def step(self, problem, settings, state, streams):
        x, log_w, log_z, t, end = state
        n, b = x.shape[1], (t + 1) / end
        log_w = log_w + (problem.log_density(x) - self.base(x)) / end
        total = log_w.logsumexp(1, keepdim=True)
        log_z, log_w = log_z + total[:, 0], log_w - total
        if t % 3 == 2 or t + 1 == end:
            u = (torch.arange(n) + streams.uniform("algorithm", (1,))) / n
            taken = torch.searchsorted(log_w.softmax(1).cumsum(1), u).clamp(max=n - 1)
            x, log_w = x.gather(1, taken[..., None].expand_as(x)), torch.full_like(log_w, -math.log(n))
        y = x + 0.4 * streams.normal("noise", x.shape[1:])
        rise = b * (problem.log_density(y) - problem.log_density(x)) + (1 - b) * (self.base(y) - self.base(x))
        x = torch.where((streams.uniform("algorithm", x.shape[1:2], 1).log() < rise)[..., None], y, x)
        return Weighted(x, log_w, log_z, t + 1, end), Tempered(log_z, torch.full_like(log_z, b))


class ForgottenWeights(WeightedMonteCarlo):
    """Weights of temperatures after which nothing was resampled are forgotten."""

    name = "forgotten-weights"

    def step(self, problem, settings, state, streams):
        return super().step(
            problem, settings, state._replace(log_w=torch.full_like(state.log_w, -math.log(state.x.shape[1]))), streams
        )


class GeneralisedHamiltonian(Algorithm[Any, Any]):
    """The right one (Horowitz 1991): one leapfrog step, a partly refreshed momentum, reversed after a rejection."""

    name, kind, settings_type, sign = "generalised-hamiltonian", "chains", Settings, -1.0
    exact: ClassVar[Any] = "invariant"

    def init(self, problem, settings, streams, horizon):
        x = problem.init()
        return WithMomentum(x, streams.normal("noise", x.shape[1:], index=1))

    def step(self, problem, settings, state, streams):
        x, eps = state.x, 3 * math.sqrt(2 * settings.step_size)
        v = 0.9 * state.v + math.sqrt(1 - 0.81) * streams.normal("noise", x.shape[1:])
        start, score = problem.log_density_and_score(x)
        y = x + eps * (p := v + eps / 2 * score)
        end, score = problem.log_density_and_score(y)
        p = p + eps / 2 * score
        rise = end - start + 0.5 * (v.square() - p.square()).sum(-1)
        accept = (streams.uniform("algorithm", x.shape[1:2]).log() < rise)[..., None]
        return WithMomentum(torch.where(accept, y, x), torch.where(accept, p, self.sign * v))


class KeptMomentum(GeneralisedHamiltonian):
    """The momentum keeps its sign after a rejection."""

    name, sign = "kept-momentum", 1.0
