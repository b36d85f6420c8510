"""Stan's NUTS on a program, as stanli implements it: its chains, and what they evaluate."""

import math
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from parvibench.core.errors import InputError, UnsupportedError, imported_library

from .stan_programs import Array, StanModel

_FIRST = 2  #: Evaluations of a chain before its first transition, of the log density and its gradient each.
#: Stan's windows of adaptation: transitions before the first, after the last, and of the first.
_BEFORE, _AFTER, _WINDOW = 75, 50, 25
_GAMMA, _T0, _KAPPA = 0.05, 10.0, 0.75  #: Stan's dual averaging: gamma, t0 and kappa.
_SEED = 2


class Block(NamedTuple):
    """Transitions of a chain."""

    position: Array  #: the last, (D,)
    step: float  #: step length at the end
    metric: Array  #: inverse metric at the end, (D,)
    facts: Array  #: mean acceptance, divergences and tree depth of the transitions after warm-up, (3,)
    evaluations: int  #: of the gradient, the warm-up's and those of searches for a step length included


class NUTS:
    """Chains of stanli's sampler on a program without its generated quantities, which nothing reads and may fail."""

    def __init__(self, model: StanModel) -> None:
        self._model, self._text = model, re.split(r"\bgenerated\s+quantities\s*\{", model.program.text)[0]

    @cached_property
    def _stanli(self) -> Any:
        return imported_library("stanli", "stan").Model(stan_code=self._text, data=self._model.data, seed=_SEED)

    def require(self, points: Any) -> None:
        """``UnsupportedError`` where Stan's sampler does not give positions, or samples another density, at points (n, D)."""
        why, model = "", self._model
        if model.lost:  # it gives values of the parameters only
            why = f"values of {', '.join(model.lost)}, a unit vector, do not say where a chain is"
        elif not np.allclose(model.both(points)[0], [self._stanli.log_prob_grad(x)[0] for x in points.numpy()], 1e-6):
            why = "its transformed data are random, and each block would draw them anew"
        if why:
            raise UnsupportedError(f"stan-nuts does not run {model.program.file}: {why}")

    def block(
        self, start: Array, step: float, metric: Array, *, seed: int, warmup: int, draws: int, depth: int, acceptance: float
    ) -> Block:  # fmt: skip
        """Transitions from a point with a step length and inverse metric, (D,); ``InputError`` where Stan fails."""
        try:
            fit = self._stanli.sample(
                chains=1, parallel_chains=1, refresh=0, seed=seed, inits=start, warmup=warmup, samples=draws,
                save_warmup=True, delta=acceptance, max_depth=depth, step_size=step, inv_metric=metric,
                adapt_engaged=warmup > 0,
            )  # fmt: skip
        except RuntimeError as error:
            raise InputError(f"Stan: {error}") from None
        stats = dict(zip(imported_library("stanli").SAMPLER_COLUMNS, fit.sampler_stats[0].T, strict=True))
        count = _FIRST + len(stats["n_leapfrog__"]) + int(stats["n_leapfrog__"].sum())
        count += searches(stats["stepsize__"][: warmup + 1], stats["accept_stat__"][:warmup], step, acceptance)
        facts = [stats[name][warmup:].mean() for name in ("accept_stat__", "divergent__", "treedepth__")]
        position = self._model.unconstrain(fit.draws()[0, -1:, : self._model.parameters])[0]
        return Block(position, float(fit.step_size[0]), fit.inv_metric[0], np.array(facts), count)


def searches(steps: Array, acceptance: Array, first: float, target: float) -> int:
    """Evaluations of Stan's searches for a step length: four, and two for each doubling or halving.

    There is one before the warm-up, from the length ``first``, and one after each of its windows. Dual averaging to the
    ``target`` says from which length it starts, the transition that follows where it ended: ``steps`` are the lengths of
    the transitions of the warm-up and of the one after it, (W + 1,), ``acceptance`` is that of the former, (W,).
    """
    if not (total := len(acceptance)):
        return 0
    ends, count = set(windows(total)), 4 + 2 * _doublings(first, steps[0])
    mu, mean, k = math.log(10 * first), 0.0, 0
    for t, accepted in enumerate(acceptance):
        k += 1
        mean += (target - min(1.0, accepted) - mean) / (k + _T0)
        if t in ends:
            count += 4 + 2 * _doublings(math.exp(mu - mean * math.sqrt(k) / _GAMMA), steps[t + 1])
            mu, mean, k = math.log(10 * steps[t + 1]), 0.0, 0
    return count


def _doublings(start: float, end: float) -> int:
    return abs(round(math.log2(end / start)))


def windows(total: int) -> Iterator[int]:
    """Transitions, counted from 0, after which Stan's warm-up of that length takes a new metric."""
    if total < _BEFORE + _WINDOW + _AFTER:
        return
    size, end, last = _WINDOW, _BEFORE + _WINDOW - 1, total - _AFTER - 1
    while True:
        yield end
        if end == last:
            return
        size *= 2
        end += size
        if end != last and end + 2 * size >= total - _AFTER:
            end = last
