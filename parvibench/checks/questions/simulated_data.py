"""Simulation-based calibration: is this sampler right for this model?

Talts, Betancourt, Simpson, Vehtari & Gelman (2018), arXiv:1804.06788. Parameters are drawn from the prior, data given them; among L
independent draws of the posterior, the rank of the parameters that made the data is uniform on 0 to L, for every coordinate and every
function of parameters and data: here also the log density (Modrak et al. 2023, arXiv:2211.02383). With a uniform number V, u = (rank + V) / (L + 1)
is uniform on (0, 1), whatever the L of a data set; L is half the sampler's own effective size, so that autocorrelation raises no alarm, and 20 at
least: chains with an effective size well below 40 have not explored the posterior, and fail as well.

Of the normal scores s = Phi^-1(u) of n data sets, three tests per function: mean(s) sqrt(n) is normal (a shift), sum s^2 chi-square of n (a width), and the
distance of Kolmogorov and Smirnov of u (any shape). After each of ``LOOKS`` data sets p-values are multiplied by the numbers of tests and of looks: a
false alarm in at most ``level`` of all runs. After ``FEWEST`` data sets a run ends where the smallest, times the number of tests, exceeds ``PLAIN``.

Where chains fail, their kernel is tested apart from the length of the run (Geweke 2004, J. Am. Stat. Assoc. 99:799-804; Gandy & Scott 2021,
arXiv:2001.06465): transitions that leave the posterior invariant, started at the parameters that made the data, leave the joint law of both
unchanged, converged or not. So does the place of the parameters among the draws of a run on these data, and its square about the middle: over further
data sets the mean change of each is 0. Chains that do not end at places of mean 1/2, without such a change, disagree with the run: it has not converged.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Generator, Tensor

from parvibench.checks.summaries import ranks_among
from parvibench.core.algorithm import Algorithm, take_steps
from parvibench.core.errors import BudgetExhausted, InputError, UnsupportedError
from parvibench.core.streams import Streams, derive_seed
from parvibench.core.task import Problem
from parvibench.harness.store.files import write_atomically
from parvibench.targets.generative import Drawn, Generative

#: Numbers of data sets after which ranks are tested, as shares of the most.
LOOKS = (0.1, 0.2, 0.4, 0.7, 1.0)
#: Family p-value above which no more data sets are drawn.
PLAIN = 0.9
#: Data sets below which that shows little: two would do.
FEWEST = 40
#: Look up to which a run whose faults name no coordinate goes on.
NAMING = 2
#: Draws that a rank is taken among, at most and at least; states of a path that are looked at.
MOST, LEAST, STATES = 99, 20, 800
#: Data sets that a kernel is tested on, at least; the first of them; transitions where their cost depends on where chains are.
FEWEST_MOVED, FIRST_MOVED, TRANSITIONS = 100, 1_000_000, 8
#: Share of data sets without finite draws above which a sampler is wrong.
LOST = 0.05
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """How much is simulated, and how it is sampled."""

    sets: int = 500  #: data sets, at most
    level: float = 0.01  #: probability of a false alarm, of the whole run
    chains: int = 4  #: N: chains, or particles
    evaluations: int = 2000  #: score evaluations of each chain; the first half of its path is discarded
    batch: int = 50  #: data sets side by side
    seed: int = 1


@dataclass(kw_only=True)
class Done:
    """How much was done."""

    lost: int = 0  #: data sets without finite draws
    tried: int = 0  #: data sets, those included
    evaluations: float = 0.0
    seconds: float = 0.0


@dataclass
class Ranks(Done):
    """Ranks of the data sets so far, one a row."""

    names: list[str] = field(default_factory=list)  #: F functions
    u: list[list[float]] = field(default_factory=list)  #: (n, F) randomised ranks in (0, 1)
    z: list[list[float]] = field(default_factory=list)  #: (n, F) (truth - posterior mean) / posterior sd
    effective: list[float] = field(default_factory=list)  #: (n,) effective sizes of the slowest function


@dataclass
class Moves(Done):
    """Transitions from the truth of further data sets, one a row."""

    #: (n, 2 F) changes of the place of every function among the sampler's draws, and of its square about the middle
    changes: list[list[float]] = field(default_factory=list)
    ends: list[list[float]] = field(default_factory=list)  #: (n, F) places after the transitions, less 1/2
    untested: str = ""  #: why there are none

    def p_values(self, rows: list[list[float]]) -> Array:
        """Of the hypothesis that the means of a function's ``changes`` or ``ends`` are 0, of the whole family, (F,)."""
        values = np.array(rows)
        n, error = len(values), values.std(0, ddof=1)
        t = np.abs(values.mean(0)) * math.sqrt(n) / np.where(error > 0, error, np.inf)
        p = values.shape[1] * 2 * stats.t.sf(t, n - 1)
        return np.minimum(1, p).reshape(-1, len(self.ends[0])).min(0)


@dataclass(frozen=True)
class Fault:
    """A function of the parameters whose posterior is wrong."""

    name: str
    kind: str  #: ``too narrow``, ``too wide``, ``shifted up``, ``shifted down``, ``of another shape``
    size: float  #: shift in posterior sds; of a width: the stated over the right one
    p_value: float  #: of the whole family

    def __str__(self) -> str:
        by = f" by {abs(self.size):.2g} posterior sds" if "shift" in self.kind else ""
        by = f": its sd is {self.size:.2g} of the right one" if "too" in self.kind else by
        return f"{self.name} is {self.kind}{by} (p = {self.p_value:.1g})"


@dataclass(frozen=True)
class Calibrated:
    """The outcome of a calibration."""

    model: str
    algorithm: str
    own_simulator: bool
    plan: Plan
    ranks: Ranks
    faults: tuple[Fault, ...]
    moves: Moves | None = None  #: of chains with faults

    @property
    def right(self) -> bool:
        """Whether no fault was detected."""
        return not self.faults and self.ranks.lost <= LOST * self.ranks.tried

    @property
    def kernel(self) -> tuple[str, dict[str, float]]:
        """``wrong``, ``not converged``, ``undecided``, ``not tested`` or, without faults, empty; functions with their p-values."""
        moves = self.moves
        if moves is None or moves.untested:
            return "not tested" if moves else "", {}
        for verdict, rows in (("wrong", moves.changes), ("not converged", moves.ends)):
            p = dict(zip(self.ranks.names, moves.p_values(rows).tolist(), strict=True)) if len(rows) > 1 else {}
            if clear := {name: p[name] for name in sorted(p, key=p.__getitem__) if p[name] < self.plan.level}:
                return verdict, clear
        return "undecided", {}

    def _of_kernel(self, moves: Moves) -> str:
        verdict, clear = self.kernel
        named = f"{', '.join([*clear][:3])}{' ...' if len(clear) > 3 else ''}; p = {min(clear.values(), default=1):.1g}"
        on = f"joint test on {moves.tried} further data sets"
        who = "sampler or model" if self.own_simulator else "the kernel itself"
        return {
            "wrong": f"Chains that start at the true parameters leave the posterior ({named}; {on}): {who} is wrong, and more evaluations are no cure.",
            "not converged": f"No fault of the kernel found ({on}), but chains that start at the true parameters end elsewhere than those of the "
            f"run ({named}): the run is too short, or starts badly.",
            "not tested": f"Whether kernel or run is at fault is not tested: {moves.untested}",
            "undecided": f"Whether kernel or run is at fault remains open ({on}).",
        }[verdict]  # fmt: skip

    def __str__(self) -> str:
        r = self.ranks
        on = f"{self.algorithm} on {self.model}"
        cost = f"{r.tried} data sets, {r.evaluations / max(1, r.tried):,.0f} score evaluations each, {r.seconds:.0f} s"
        lines = [f"{on}: {'no fault found' if self.right else 'WRONG'} ({cost}; level {self.plan.level:g})"]
        lines += [f"  {fault}" for fault in self.faults]
        if r.lost:
            lines.append(f"  {r.lost} of {r.tried} data sets ended without finite draws that move")
        lines += [self._of_kernel(self.moves)] if self.moves else []
        if not self.own_simulator:
            lines.append("Prior and simulator are the model's own: this checks the sampler, not the model.")
        if r.effective and np.quantile(r.effective, 0.1) < 2 * LEAST:
            low, middle = np.quantile(r.effective, [0.1, 0.5])
            lines.append(
                f"Chains are short: effective sizes of {middle:.0f} (median) and below {low:.0f} (a tenth of the data sets). What is "
                "found may be cured by more --evaluations, and smaller faults may be hidden."
            )
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        moves = self.moves
        return {
            "model": self.model, "algorithm": self.algorithm, "verdict": "right" if self.right else "wrong",
            "checks": "sampler and model" if self.own_simulator else "sampler", "plan": asdict(self.plan),
            "faults": [asdict(fault) for fault in self.faults], "data_sets": self.ranks.tried, "lost": self.ranks.lost,
            "score_evaluations": self.ranks.evaluations, "seconds": self.ranks.seconds,
            "functions": [
                {"name": name, "shift": shift, "width": width, "p_value": p}
                for name, shift, width, p in zip(self.ranks.names, *sizes(self.ranks), p_values(self.ranks).min(0).tolist(), strict=True)
            ] if self.ranks.u else [],
            "kernel": None if moves is None else {
                "verdict": self.kernel[0], "reason": moves.untested or None, "functions": self.kernel[1], "data_sets": moves.tried,
                "lost": moves.lost, "score_evaluations": moves.evaluations, "seconds": moves.seconds,
            },
        }  # fmt: skip

    def draw(self, path: Path) -> Path:
        """The picture: ECDF of the ranks less that of uniform ones, with simultaneous 99% bands; a PNG."""
        from matplotlib.figure import Figure

        u, columns = np.array(self.ranks.u), min(4, len(self.ranks.names))
        rows = -(-len(self.ranks.names) // columns)
        figure = Figure(figsize=(3 * columns, 2.4 * rows), layout="constrained")
        grid, low, high = band(len(u), 0.99)
        faults = {fault.name for fault in self.faults}
        for i, name in enumerate(self.ranks.names):
            axes = figure.add_subplot(rows, columns, i + 1)
            axes.fill_between(grid, low - grid, high - grid, step="mid", color="#cccccc", lw=0)
            difference = (u[:, i, None] <= grid).mean(0) - grid
            axes.plot(grid, difference, color="#d55e00" if name in faults else "#0072b2")
            axes.set_title(name + (" (wrong)" if name in faults else ""), fontsize=9)
            axes.tick_params(labelsize=7)
        figure.supxlabel("rank / L", fontsize=9)
        figure.supylabel("ECDF - uniform", fontsize=9)
        figure.savefig(path, dpi=110, metadata={"Software": None})
        return path


def calibrate(
    model: Generative,
    algorithm: Algorithm,
    settings: dict[str, Any],
    plan: Plan,
    store: Path | None = None,
    source: str = "",
    notify: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> Calibrated:
    """Simulate data sets until a fault is certain or the ranks are plainly uniform.

    Finished data sets are written to the file ``store``; a run with the same model, ``source`` (digest of the model's file), sampler
    and plan goes on from it. ``notify`` is called with a text, the data sets done and the most.
    """
    if plan.sets < 1 / LOOKS[0]:
        raise InputError(f"{plan.sets} data sets are too few to test ranks: {math.ceil(1 / LOOKS[0])} or more")
    chosen = algorithm.make_settings(settings)
    key = {
        "model": model.name, "source": source, "algorithm": [algorithm.name, algorithm.version], "settings": chosen.model_dump(mode="json"),
        "plan": asdict(replace(plan, sets=0, level=0.0)),
    }  # fmt: skip
    (ranks, moves), faults = _stored(store, key), tuple[Fault, ...]()
    looks = [math.ceil(share * plan.sets) for share in LOOKS]

    def extend(done: Ranks | Moves, add: Callable[..., None], upto: int, first: int, text: str) -> None:
        while done.tried < upto:
            size = 1 if algorithm.max_chunk == 1 else plan.batch
            ids = range(first + done.tried, first + min(upto, done.tried + size))
            began = time.perf_counter()
            add(done, model, algorithm, chosen, plan, ids)
            done.tried += len(ids)
            done.seconds += time.perf_counter() - began
            notify(text, done.tried, max(upto, plan.sets if done is ranks else 0))
            if store is not None:
                write_atomically(
                    store, json.dumps({"key": key, "ranks": asdict(ranks), "moves": asdict(moves)}).encode()
                )

    for number, look in enumerate(looks):
        extend(ranks, _extend, look, 0, f"{algorithm.name} on {model.name}")
        faults = found(ranks, plan.level, len(looks))
        plain = bool(ranks.u) and p_values(ranks).min() * 3 * len(ranks.names) > PLAIN
        named = any(ranks.names.index(fault.name) < ranks.names.index("log density") for fault in faults)
        decided = named or (faults and number >= NAMING) or (ranks.tried >= FEWEST and plain and not faults)
        if decided or ranks.lost > LOST * plan.sets:
            break
    tested = moves if faults and algorithm.kind == "chains" else None
    if tested:
        try:
            upto = max(FEWEST_MOVED, ranks.tried)
            extend(moves, _extend_moves, upto, FIRST_MOVED, f"the kernel of {algorithm.name} on {model.name}")
        except UnsupportedError as error:
            moves.untested = str(error)
    return Calibrated(model.name, algorithm.name, model.own_simulator, plan, ranks, faults, tested)


def _stored(store: Path | None, key: dict[str, Any]) -> tuple[Ranks, Moves]:
    if store is None or not store.is_file():
        return Ranks(), Moves()
    try:
        stored = json.loads(store.read_text())
        same = stored["key"] == key
        return (Ranks(**stored["ranks"]), Moves(**stored["moves"])) if same else (Ranks(), Moves())
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{store}: no record of a calibration; give another --out, or delete it") from error


def _problem(drawn: Drawn, algorithm: Algorithm, plan: Plan, ids: Sequence[int], name: str, **more: Any) -> Problem:
    streams = Streams(derive_seed(plan.seed, name), tuple(ids), "cpu", torch.float64)
    return Problem(drawn.target, streams, particles=algorithm.n_particles or plan.chains, **more)


def _extend(
    ranks: Ranks, model: Generative, algorithm: Algorithm, settings: Any, plan: Plan, ids: Sequence[int]
) -> None:
    """Draw these data sets, sample their posteriors, and add their ranks."""
    x, _, problem, drawn = _sampled(model, algorithm, settings, plan, ids)
    generator = Generator().manual_seed(derive_seed(plan.seed, f"ranks {ids[0]}") % 2**63)
    own = functions_of(drawn, drawn.truth[:, None])[:, 0]
    s, r, c, d = x.shape
    values = functions_of(drawn, x.permute(1, 0, 2, 3).reshape(r, s * c, d)).view(r, s, c, -1)
    sizes = effective_sizes(values).amin(-1) if algorithm.kind == "chains" else torch.full((r,), 2.0 * s * c)
    ranks.names = [*drawn.coordinates, "log density", *drawn.quantities(drawn.truth[:, None])]
    for i in range(r):
        if not bool(values[i].isfinite().all()) or not bool(own[i].isfinite().all()) or not sizes[i] > 0:
            ranks.lost += 1
            continue
        each = min(s, max(-(-LEAST // c), min(MOST, int(sizes[i] / 2)) // c))
        rows = ((torch.arange(each) + 0.5) * s / each).long()
        kept = values[i, rows].flatten(0, 1)
        rank = ranks_among(own[i : i + 1], kept[None], generator)[0]
        u = (rank + torch.rand(rank.shape, generator=generator, dtype=torch.float64)) / (len(kept) + 1)
        flat = values[i].flatten(0, 1)
        ranks.u.append(u.tolist())
        ranks.z.append(((own[i] - flat.mean(0)) / flat.std(0).clamp_min(1e-300)).tolist())
        ranks.effective.append(float(sizes[i]))
    ranks.evaluations += problem.meter.charged * r


def _extend_moves(
    moves: Moves, model: Generative, algorithm: Algorithm, settings: Any, plan: Plan, ids: Sequence[int]
) -> None:
    """Draw these data sets, sample their posteriors, go on from the truth with what was adapted, and add the changes."""
    x, state, problem, drawn = _sampled(model, algorithm, settings, plan, ids)
    begin = lambda _, n, __: drawn.truth[:, None].repeat(1, n, 1)  # noqa: E731
    again = _problem(drawn, algorithm, plan, ids, f"{model.name}: transitions", start=begin)
    number = TRANSITIONS if algorithm.host_bound is True else max(1, (problem.streams.step + 1) // 2)
    with torch.no_grad():
        first = algorithm.frozen(again, settings, state, again.streams)
        taken = itertools.islice(take_steps(algorithm.step, again, settings, first), number)
        there = _evenly([after.x for after, _ in taken][number // 2 :])
    points = (x.permute(1, 0, 2, 3).flatten(1, 2), there.permute(1, 0, 2, 3).flatten(1, 2), drawn.truth[:, None])
    draws, moved, own = (functions_of(drawn, p) for p in points)
    finite = torch.stack([v.isfinite().flatten(1).all(1) for v in (draws, moved, own)]).all(0)
    moves.lost += int((~finite).sum())
    ordered = draws.mT.contiguous().sort(-1).values  # (R, F, L)

    def places(values: Tensor) -> Tensor:
        """Mean place of (R, n, F) values among the draws, and mean square of it about the middle, (R, 2 F)."""
        at = values.mT.contiguous()
        below, upto = torch.searchsorted(ordered, at), torch.searchsorted(ordered, at, right=True)
        place = (below + upto) / (2 * ordered.shape[-1])
        return torch.cat([place.mean(-1), (place - 0.5).square().mean(-1)], -1).double()

    ends = places(moved)
    moves.changes += (ends - places(own))[finite].tolist()
    moves.ends += (ends[:, : own.shape[2]] - 0.5)[finite].tolist()
    moves.evaluations += (problem.meter.charged + again.meter.charged) * len(ids)


def _sampled(
    model: Generative, algorithm: Algorithm, settings: Any, plan: Plan, ids: Sequence[int]
) -> tuple[Tensor, Any, Problem, Drawn]:
    """Draws (S, R, C, D) from the posteriors of these data sets, the sampler's last state, its problem, and the data sets."""
    drawn = model.draw(plan.seed, ids)
    limit = float(plan.evaluations * (algorithm.n_particles or plan.chains))
    problem = _problem(drawn, algorithm, plan, ids, model.name, start=drawn.start, limit=limit)
    return *draws_of(algorithm, settings, problem, plan), problem, drawn


def functions_of(drawn: Drawn, x: Tensor) -> Tensor:
    """Coordinates, log density and the model's own quantities at points (R, n, D): (R, n, F)."""
    more = [value.double()[..., None] for value in drawn.quantities(x).values()]
    return torch.cat([x, drawn.target.log_density(x).detach()[..., None], *more], -1)


def draws_of(algorithm: Algorithm, settings: Any, problem: Problem, plan: Plan) -> tuple[Tensor, Any]:
    """The second half of the chains' path, thinned evenly, or independent draws of another kind, (S, R, C, D); the last state."""
    path, state = list[Tensor](), None
    with torch.no_grad():
        try:
            state = first = algorithm.init(problem, settings, problem.streams, plan.evaluations)
            for after, _ in take_steps(algorithm.step, problem, settings, first):
                state = after
                if algorithm.kind == "chains":
                    path.append(state.x)
                if algorithm.ended(problem, settings, state):
                    break
        except BudgetExhausted:
            if state is None or (algorithm.kind == "chains" and not path):
                raise InputError(
                    f"{algorithm.name}: {plan.evaluations} score evaluations of a chain do not suffice for a step; raise them"
                ) from None
        if algorithm.kind != "chains":
            n = MOST if algorithm.kind == "generator" else problem.particles
            x = algorithm.output(problem, settings, state, n, problem.streams)[:, :n].double()
            return x.transpose(0, 1).unsqueeze(2), state
    return _evenly(path[len(path) // 2 :]), state


def _evenly(path: list[Tensor]) -> Tensor:
    """States of a path, at most ``STATES`` of all chains, (S, R, C, D)."""
    return torch.stack(path[:: max(1, -(-len(path) * path[0].shape[1] // STATES))]).double()


def effective_sizes(values: Tensor) -> Tensor:
    """Effective sizes of chains (R, S, C, F), (R, F): Vehtari et al. (2021), with Geyer's initial monotone sequence."""
    s, c = values.shape[1:3]
    apart = values - values.mean(1, keepdim=True)
    spectrum = torch.fft.rfft(apart, 2 * s, dim=1)
    covariance = (torch.fft.irfft(spectrum * spectrum.conj(), 2 * s, dim=1)[:, :s] / s).mean(2)  # (R, S, F)
    within = covariance[:, :1] * s / max(1, s - 1)
    between = values.mean(1).var(1, keepdim=True) if c > 1 else torch.zeros_like(within)
    total = within * (s - 1) / s + between
    rho = 1 - (within - covariance) / total
    pairs = rho[:, : s // 2 * 2].unflatten(1, (-1, 2)).sum(2)
    pairs = torch.where((pairs > 0).cumprod(1) > 0, pairs, 0.0).cummin(1).values
    return (s * c / (2 * pairs.sum(1) - 1).clamp_min(1 / math.log10(max(10, s * c)))).nan_to_num(nan=0.0)


def p_values(ranks: Ranks) -> Array:
    """Of shift, width and shape of every function, (3, F)."""
    u = np.array(ranks.u).clip(1e-12, 1 - 1e-12)
    scores, n = stats.norm.ppf(u), len(u)
    square = (scores**2).sum(0)
    width = 2 * np.minimum(stats.chi2.sf(square, n), stats.chi2.cdf(square, n))
    shape = [float(stats.kstest(column, "uniform").pvalue) for column in u.T]
    return np.stack([2 * stats.norm.sf(np.abs(scores.mean(0)) * math.sqrt(n)), np.minimum(width, 1), shape])


def sizes(ranks: Ranks) -> tuple[list[float], list[float]]:
    """Shifts of the posteriors in their own sds, and their sds over the right ones, (F,) each."""
    z = np.array(ranks.z)
    middle = np.median(z, 0)
    spread = np.median(np.abs(z - middle), 0) / stats.norm.ppf(0.75)
    return (-z.mean(0)).tolist(), (1 / np.maximum(spread, 1e-12)).tolist()


def found(ranks: Ranks, level: float, looks: int) -> tuple[Fault, ...]:
    """Functions with a p-value below the level, the clearest first."""
    if not ranks.u:
        return ()
    p = p_values(ranks) * 3 * len(ranks.names) * looks
    shift, width = sizes(ranks)
    square = (stats.norm.ppf(np.array(ranks.u).clip(1e-12, 1 - 1e-12)) ** 2).mean(0)
    faults = []
    for i, name in enumerate(ranks.names):
        way, bound, word = ("up" if shift[i] > 0 else "down"), *((min, "narrow") if square[i] > 1 else (max, "wide"))
        kinds = ((f"shifted {way}", shift[i]), (f"too {word}", bound(width[i], 1.0)), ("of another shape", 0.0))
        clearest = int(p[:2, i].argmin()) if p[:2, i].min() < level else 2
        if p[clearest, i] < level:
            faults.append(Fault(name, *kinds[clearest], float(p[:, i].min())))
    return tuple(sorted(faults, key=lambda fault: fault.p_value))


def band(n: int, cover: float) -> tuple[Array, Array, Array]:
    """Places in (0, 1), and limits between which the ECDF of n uniform numbers stays at all of them with this probability.

    Saeilynoja, Buerkner & Vehtari (2022), Stat. Comput. 32:32, by simulation: pointwise binomial intervals, all of one level.
    """
    grid = np.linspace(0, 1, min(n, 100) + 1)[1:-1]
    counts = np.sort(np.random.default_rng(n).random((2000, n)), 1)
    counts = np.stack([(row[:, None] <= grid).sum(0) for row in counts])
    tails = 2 * np.minimum(stats.binom.cdf(counts, n, grid), stats.binom.sf(counts - 1, n, grid))
    gamma = np.quantile(tails.min(1), 1 - cover)
    return grid, stats.binom.ppf(gamma / 2, n, grid) / n, stats.binom.isf(gamma / 2, n, grid) / n
