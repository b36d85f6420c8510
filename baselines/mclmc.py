"""Microcanonical Langevin Monte Carlo (MCLMC), unadjusted.

Robnik, De Luca, Silverstein & Seljak (2023), Microcanonical Hamiltonian Monte Carlo, JMLR 24(311), arXiv:2212.08549;
the Langevin version: Robnik & Seljak (2023), Fluctuation without dissipation, arXiv:2303.18221. The energy is
constant, not drawn: a particle of unit speed is turned by the force (``_isokinetic``), and after every step of length eps

    u <- (u + nu z) / |u + nu z|,   nu = sqrt((exp(2 eps / L) - 1) / D),   z ~ N(0, I):

after the length L the direction is forgotten. There is no Metropolis step: the samples are biased by the integrator's
energy error, which the tuning holds at a variance of 5e-4 per dimension.

The tuning (Section 6 and the authors' program), over the first quarter of the charged budget, per replicate, has four
equal parts:

1. eps, in the first three: an energy error predicts, by Var[E] ~ eps^6, the length that would have the wanted
   variance; predictions are averaged with a memory of 150 and less weight for those far off.
2. In the second, variances of the coordinates: they become the scales (``precondition``), and L = sqrt(D), else
   L = sqrt(sum of variances): the size of the posterior.
3. In the last, the autocorrelation time tau, in steps: L = 0.4 eps tau (``length_rule``).

Departs from the paper: the N chains of a replicate pool their energy errors, variances and correlations, where one
chain averages over time; the correlation of the chains with their positions at the beginning of the last part is
summed while it is positive, where an effective sample size comes from the stored path, and where the warm-up ends
before the sum does, L stays at the posterior's size. A chain whose step ends in NaN stays and turns round; the bound
on eps then falls by a fifth, as in the program. Traps: eps is a length in units of the scales, not the eta of other
methods; nu has the D of the target, the force D - 1; and tau must be counted in steps of the last eps.
"""

import math
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.nn.masks import where

from ._chains import MAX_ENERGY_ERROR, warmup_steps
from ._isokinetic import SCORES, Integrator, Point, Spread, moved, start, unit

#: Ends of the parts of the warm-up, as shares: eps alone; variances as well; eps again; then the correlations.
PARTS = (0.25, 0.5, 0.75)
#: Effective number of energy errors that a length is predicted from.
MEMORY = 150
#: Standard deviation of the trust in a prediction, in log eps (1.5 in the program, whose logarithm is of eps^6).
TRUST = 1.5
_HUGE = 1e30


class Settings(AlgorithmSettings):
    """Settings of MCLMC."""

    energy_variance: float = Field(
        5e-4, gt=0, description="wanted variance of a step's energy error per dimension, nats^2; the program's"
    )
    integrator: Integrator = Field("minimal-norm", description="of the isokinetic dynamics; minimal-norm: the paper's")
    length_rule: Literal["autocorrelation", "size"] = Field(
        "autocorrelation", description="L from the autocorrelation time, or left at the posterior's size; the paper's"
    )
    precondition: bool = Field(True, description="scale coordinates by their standard deviations; the program's")
    warmup_steps: int | None = Field(None, ge=0, description="steps of the tuning; None: a quarter of the budget; ours")
    first_length: float | None = Field(None, gt=0, description="first eps, in x; None: sqrt(D) / 4, the program's")
    first_decoherence: float | None = Field(None, gt=0, description="first L, in x; None: sqrt(D), the program's")


class Tuning(NamedTuple):
    """Sums of the warm-up."""

    predicted: Tensor  # (R,) weighted sum of eps^-6 of the predictions
    weight: Tensor  # (R,) of the sum
    longest: Tensor  # (R,) bound on eps, from steps that ended in NaN
    spread: Spread
    anchor: Tensor  # (R, N, D) positions that later ones are correlated with
    positive: Tensor  # (R,) 1 while their correlation has been positive
    tau: Tensor  # (R,) sum of the correlations


class State(NamedTuple):
    """Chains and their parameters."""

    x: Tensor  # (R, N, D)
    direction: Tensor  # (R, N, D)
    log_density: Tensor  # (R, N)
    score: Tensor  # (R, N, D)
    eps: Tensor  # (R,) in units of the scales
    length: Tensor  # (R,) L, in units of the scales
    scale: Tensor  # (R, D)
    tuning: Tuning
    t: int  # steps taken
    warmup: int  # steps of the warm-up


class Info(NamedTuple):
    """Per-step diagnostics, (R,) each."""

    energy_variance: Tensor  # mean square energy error per dimension, over the chains whose step did not diverge
    divergences: Tensor  # share of the chains with an energy error beyond MAX_ENERGY_ERROR or NaN
    step_length: Tensor  # eps
    decoherence_length: Tensor  # L


class MCLMC(Algorithm[Settings, State]):
    """Microcanonical Langevin Monte Carlo, unadjusted, with its tuning."""

    name = "mclmc"
    kind = "chains"
    needs = frozenset({"full-batch", "score"})
    citation = "Robnik, De Luca, Silverstein & Seljak (2023), arXiv:2212.08549"
    example: ClassVar[Example] = Example(quick={"warmup_steps": 4}, scores=2, first_scores=1, settings={}, steps=200)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the task's initial points; ``UnsupportedError`` on a line."""
        d = problem.dim
        point = start(problem, self.name, streams.normal("init", (problem.particles, d)))
        one, spread = point.x.new_ones(len(point.x)), Spread.none(point.x)
        eps, length = settings.first_length or math.sqrt(d) / 4, settings.first_decoherence or math.sqrt(d)
        tuning = Tuning(0 * one, 0 * one, _HUGE * one, spread, torch.zeros_like(point.x), one, 0.5 * one)
        warmup = warmup_steps(problem, horizon, SCORES[settings.integrator], given=settings.warmup_steps)
        return State(*point, eps * one, length * one, torch.ones_like(spread.total), tuning, 0, warmup)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """One step of the integrator, then a little noise on the directions."""
        here = Point(*state[:4])
        eps = state.eps.view(-1, 1, 1)
        there, error = moved(problem, here, eps, state.scale.unsqueeze(1), settings.integrator)
        finite = error.isfinite() & there.x.isfinite().all(-1) & there.score.isfinite().all(-1)
        there = where(finite, there, here._replace(direction=-here.direction))

        noise = streams.normal("noise", state.x.shape[1:])
        nu = ((torch.expm1(2 * state.eps / state.length)) / problem.dim).sqrt().view(-1, 1, 1)
        point = there._replace(direction=unit(there.direction + nu * noise))

        held = error.abs() < MAX_ENERGY_ERROR  # NaN compares false
        square = torch.where(held, error, 0.0).square().sum(1) / held.sum(1).clamp_min(1) / problem.dim
        info = Info(square, 1 - held.to(square.dtype).mean(1), state.eps, state.length)
        state = state._replace(**point._asdict(), t=state.t + 1)
        if state.t <= state.warmup:
            state = _tuned(settings, state, torch.where(finite, error, 0.0), finite)
        return state, info


def _tuned(settings: Settings, state: State, error: Tensor, finite: Tensor) -> State:
    """The state after what step ``t`` of the warm-up tells: energy errors (R, N), 0 where a step was not finite."""
    first, second, third = (round(share * state.warmup) for share in PARTS)
    correlated = settings.length_rule == "autocorrelation"
    if state.t <= third or not correlated:
        state = _with_length(settings, state, error, finite)
    if first < state.t <= second:
        state = state._replace(tuning=state.tuning._replace(spread=state.tuning.spread.add(state.x)))
    enough = (second - first) * state.x.shape[1] >= 2 * state.x.shape[2]  # else too few for a variance
    if state.t == second and enough:
        state = _with_scales(settings, state)
    if correlated:
        if state.t == third:
            state = state._replace(tuning=state.tuning._replace(anchor=state.x))
        elif state.t > third:
            state = _with_correlation(state)
        if state.t == state.warmup > third > second:
            known = state.tuning.positive == 0  # else the correlation has not ended yet
            state = state._replace(length=torch.where(known, 0.8 * state.eps * state.tuning.tau, state.length))
    return state


def _with_length(settings: Settings, state: State, error: Tensor, finite: Tensor) -> State:
    """Learn eps from energy errors, with the predictions of all chains averaged."""
    tuning, d = state.tuning, state.x.shape[-1]
    xi = error.square() / (d * settings.energy_variance) + 1e-8
    trust = torch.exp(-0.5 * (xi.log() / (6 * TRUST)).square())
    kept = (MEMORY - 1) / (MEMORY + 1)
    predicted = kept * tuning.predicted + (trust * xi).mean(1) / state.eps**6
    weight = kept * tuning.weight + trust.mean(1)
    longest = torch.where(finite.all(1), tuning.longest, torch.minimum(tuning.longest, 0.8 * state.eps))
    eps = torch.minimum((predicted / weight) ** (-1 / 6), longest)
    return state._replace(eps=eps, tuning=tuning._replace(predicted=predicted, weight=weight, longest=longest))


def _with_scales(settings: Settings, state: State) -> State:
    """Scales, or L, from the variances; eps keeps its size relative to the posterior's and is learnt again."""
    variance, d = state.tuning.spread.variance(), state.x.shape[-1]
    size = variance.sum(-1).sqrt()
    if not settings.precondition:
        return state._replace(length=size)
    zero = torch.zeros_like(size)
    tuning = state.tuning._replace(predicted=zero, weight=zero, longest=_HUGE + zero)
    shrunk = math.sqrt(d) / size
    return state._replace(scale=variance.sqrt(), eps=state.eps * shrunk, length=zero + math.sqrt(d), tuning=tuning)


def _with_correlation(state: State) -> State:
    """Add the correlation with the anchor, while positive: tau = 2 (1/2 + rho_1 + ...), of which the field is half."""
    tuning = state.tuning
    mean = tuning.spread.mean().unsqueeze(1)
    products = ((tuning.anchor - mean) * (state.x - mean)).mean(1)
    rho = (products / tuning.spread.variance()).mean(-1)
    positive = tuning.positive * (rho > 0)
    tau = tuning.tau + positive * rho.nan_to_num(nan=0.0)
    return state._replace(tuning=tuning._replace(positive=positive, tau=tau))
