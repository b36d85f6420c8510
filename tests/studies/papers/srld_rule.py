"""SRLD's networks by the paper's rule: ``python tests/studies/papers --rule [SET ...]``.

The paper prints no step size but says how it chose them: "for each dataset, we generate 3 extra data splits for tuning the
step size for each method" (Appendix B.4). Its program publishes that of Energy alone. Here the rule is followed, with
everything that it leaves open fixed before the first run:

- the extra splits are the program's own recipe at seeds 21 to 23; those of the tables are 1 to 20;
- the rate of a training row is chosen from ``RATES``, extended by four on a side as long as the best is at its end, by the
  mean over the three splits of the test RMSE of 100 samples, the only error that the program computes; the same for LD and
  for SRLD, whose repulsion has the same rate (alpha = 1), as in the program for Energy;
- as in that program one burn-in of 40,000 steps by LD, at LD's rate (for Energy both are 0.02), fills the memory of ten
  states, and both methods run 10,000 steps from its state with the same noise; rows are taken in turn, and the noise variance
  is drawn from its conditional law every 25 steps.

Every split has ``CHAINS`` chains; WineRed has ten, after two had left nine of its numbers open that more can decide. The
splits are the paper's own, so intervals are over chains given the splits, and hold the noise of the paper's one chain a
split: prediction intervals of its mean, see ``interval``.

Writes ``rule.csv``, a published number a line, and ``rates.csv``, what every rate gave. Finished parts are in a store.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from parvibench.core.registry import load_method, load_task

from .kinds import add_lines

#: Data set in the paper's words -> in the names of tasks, small sets first.
SETS = {
    "Yacht": "yacht", "Boston": "boston", "Energy": "energy", "Concrete": "concrete", "WineRed": "wine-red",
    "WineWhite": "wine-white", "Naval": "naval",
}  # fmt: skip
RATES = tuple(0.02 * 2.0**k for k in range(2, -6, -1))
TUNING_SPLITS, SPLITS = (20, 21, 22), tuple(range(20))  #: split s has the program's seed s + 1
CHAINS, MORE_CHAINS = 2, {"wine-red": 10}  #: of a split
BURN_IN, STEPS, THINNING, MEMORY, GIBBS, BATCH = 40_000, 10_000, 100, 10, 25, 100
#: What the program publishes: nothing is chosen for these sets.
PUBLISHED = {"Energy": {"LD": 0.02, "SRLD": 0.01}}
KEPT = (20, 40, 60, 80, 100)  #: samples of Tables 3 and 4
FAR = 10  #: medians, beyond which a chain has left the rest
RATE, SHAPE = 0.1, 1.0  #: of the noise precision's prior


class Chains(NamedTuple):
    """States and memories of all chains after a burn-in."""

    x: Tensor  # (R, 1, D)
    past: Tensor  # (R, M, D)
    scores: Tensor  # (R, M, D)

    def of(self, rows: Sequence[int]) -> Chains:
        """Those of some chains."""
        chosen = list(rows)
        return Chains(*(t[chosen] for t in self))


class Bench:
    """Chains of one data set, a split each, sampled as the paper's program does."""

    def __init__(self, name: str, splits: Sequence[int], seed: int, each: int = 1) -> None:
        task: Any = load_task(f"bnn-{name}-srld")
        torch.set_num_threads(1)
        chains = [(s, c) for s in splits for c in range(each)]
        self.target = task.target([s for s, _ in chains], "cpu", torch.float32)
        self.held_out = task.predictive([s for s, _ in chains], "cpu", torch.float32)
        starts = [torch.Generator().manual_seed(1000 * seed + 100 * c + s) for s, c in chains]
        self.x0 = task.initial(self.target, 1, starts).float()
        self.seed, self.n, self.noise_at = seed, self.target.rows, self.target.model.network.weights
        self.repulsion = importlib.import_module(load_method("srld").__module__).repulsion

    def burn_in(self, rates: Tensor) -> Chains:
        """By LD from the start; ``rates`` (R,) of a training row."""
        empty = self.x0.repeat(1, MEMORY, 1)
        return self._run(Chains(self.x0, empty, torch.zeros_like(empty)), rates, 0.0, BURN_IN, 0)[0]

    def sample(self, chains: Chains, rates: Tensor, alpha: float) -> Tensor:
        """100 states (R, 100, D), 100 steps apart; ``alpha`` = 0 is LD."""
        return self._run(chains, rates, alpha, STEPS, 1)[1]

    @torch.inference_mode()
    def _run(self, chains: Chains, rates: Tensor, alpha: float, steps: int, part: int) -> tuple[Chains, Tensor]:
        noise, gibbs = (torch.Generator().manual_seed(7919 * self.seed + 10 * part + i) for i in range(2))
        x, past, scores = chains
        eta = (rates / self.n)[:, None, None]
        spread, kept = (2 * eta).sqrt(), []
        for k in range(steps):
            if k % GIBBS == 0:
                x = self._with_noise_drawn(x, gibbs)
            rows = torch.arange(k * BATCH, (k + 1) * BATCH) % self.n
            score = self.target.score(x, rows.expand(len(x), -1))
            drift = score.add(self.repulsion(x, past, scores), alpha=alpha) if alpha else score
            if k % THINNING == 0:
                past, scores = torch.cat((past[:, 1:], x), 1), torch.cat((scores[:, 1:], score), 1)
            moved = x + eta * drift + spread * torch.randn(x.shape, generator=noise)
            moved[..., self.noise_at] = x[..., self.noise_at]
            x = moved
            if part and (k + 1) % THINNING == 0:
                kept.append(x)
        return Chains(x, past, scores), torch.cat(kept, 1) if kept else x

    def _with_noise_drawn(self, x: Tensor, gibbs: torch.Generator) -> Tensor:
        """The precision of the noise from its conditional law, Gamma(1 + n/2, rate 0.1 + S/2)."""
        squares = self.target.squares(x)
        shape = torch.full(squares.shape, SHAPE + self.n / 2, dtype=torch.float64)
        drawn = torch._standard_gamma(shape, generator=gibbs)
        x = x.clone()
        x[..., self.noise_at] = (drawn / (RATE + squares.double() / 2)).log().to(x)
        return x

    @torch.inference_mode()
    def judged(self, samples: Tensor) -> NDArray[np.float64]:
        """RMSE of the mean prediction, and the mean log likelihood of the mixture, of the first 20, ... samples: (R, 5, 2)."""
        means, sd = (v.double() for v in self.held_out.predict(samples))  # (R, n, T), (R, n)
        y = self.held_out.y.double()
        z = (y[:, None] - means) / sd[..., None]
        logs = -0.5 * z.square() - sd.log()[..., None] - 0.5 * math.log(2 * math.pi)
        found = [
            torch.stack(
                ((means[:, :n].mean(1) - y).square().mean(1).sqrt(), (logs[:, :n].logsumexp(1) - math.log(n)).mean(1)),
                -1,
            )
            for n in KEPT
        ]
        return torch.stack(found, 1).numpy()


def tuned(name: str, store: Path) -> tuple[pd.DataFrame, dict[str, float]]:
    """What every rate gave on the extra splits, and the best of each method."""
    tried: dict[str, dict[float, NDArray[np.float64]]] = {"LD": {}, "SRLD": {}}
    rates: Sequence[float] = RATES
    starts: dict[float, tuple[Bench, Chains]] = {}
    while rates:
        bench, chains = _tune_ld(name, rates, tried["LD"], store)
        starts.update({rate: (bench, chains.of(range(3 * i, 3 * i + 3))) for i, rate in enumerate(rates)})
        rates = _further(tried["LD"])
    best = _best(tried["LD"])
    rates = RATES
    while rates:
        file = store / f"{name}-tune-srld-{rates[0]:.3g}.npy"
        if not file.exists():
            bench = Bench(name, TUNING_SPLITS * len(rates), 0)
            start = starts[best][1]
            chains = Chains(*(t.repeat(len(rates), 1, 1) for t in start))
            np.save(file, bench.judged(bench.sample(chains, _each(rates, 3), 1.0)))
        _put(tried["SRLD"], rates, np.load(file))
        rates = _further(tried["SRLD"])
    lines = [
        (name, method, rate, *found[:, -1].mean(0), *found[:, -1, 0])
        for method, by_rate in tried.items()
        for rate, found in sorted(by_rate.items())
    ]
    columns = ["set", "method", "rate", "rmse", "log_likelihood", "rmse_21", "rmse_22", "rmse_23"]
    return pd.DataFrame(lines, columns=columns), {method: _best(by_rate) for method, by_rate in tried.items()}


def _tune_ld(name: str, rates: Sequence[float], tried: dict[float, Any], store: Path) -> tuple[Bench, Chains]:
    file = store / f"{name}-tune-ld-{rates[0]:.3g}.pt"
    bench = Bench(name, TUNING_SPLITS * len(rates), 0)
    if not file.exists():
        chains = bench.burn_in(_each(rates, 3))
        found = bench.judged(bench.sample(chains, _each(rates, 3), 0.0))
        torch.save({"chains": list(chains), "found": torch.from_numpy(found)}, file)
    kept = torch.load(file, weights_only=True)
    _put(tried, rates, kept["found"].numpy())
    return bench, Chains(*kept["chains"])


def _each(values: Sequence[float], times: int) -> Tensor:
    return torch.tensor(values).repeat_interleave(times)


def _put(tried: dict[float, Any], rates: Sequence[float], found: NDArray[np.float64]) -> None:
    tried.update({rate: found[3 * i : 3 * i + 3] for i, rate in enumerate(rates)})


def _best(tried: dict[float, NDArray[np.float64]]) -> float:
    """By the mean error of the extra splits; the smallest rate where all diverge."""
    return min(tried, key=lambda rate: (np.nan_to_num(tried[rate][:, -1, 0].mean(), nan=math.inf), rate))


def _further(tried: dict[float, Any]) -> tuple[float, ...]:
    """Four more rates on the side where the best is at the end; none elsewhere."""
    best = _best(tried)
    if best == min(tried):
        return tuple(best / 2**k for k in range(1, 5))
    return tuple(best * 2**k for k in range(1, 5)) if best == max(tried) else ()


def final(name: str, rates: dict[str, float], store: Path, alpha: float = 1.0) -> dict[str, NDArray[np.float64]]:
    """Values of both methods by split and chain, (20, chains, 5, 2)."""
    file, each = store / f"{name}-final.npz", MORE_CHAINS.get(name, CHAINS)
    if not file.exists():
        bench = Bench(name, SPLITS, 1, each)
        chains = bench.burn_in(torch.full((len(bench.x0),), rates["LD"]))
        found = {}
        for method, strength in (("LD", 0.0), ("SRLD", alpha)):
            values = bench.judged(bench.sample(chains, torch.full((len(bench.x0),), rates[method]), strength))
            found[method] = values.reshape(len(SPLITS), each, len(KEPT), 2)
        np.savez(file, **found)
    with np.load(file) as kept:
        return {method: kept[method] for method in ("LD", "SRLD")}


def interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of values (splits, chains) and the 95% prediction interval of the mean of one chain a split, given the splits."""
    splits, chains = values.shape
    noise = float(values.var(axis=1, ddof=1).mean()) / splits
    half = float(stats.t.ppf(0.975, splits * (chains - 1))) * math.sqrt(noise * (1 + 1 / chains))
    mean = float(values.mean())
    return mean, mean - half, mean + half


def lines_of(dataset: str, found: dict[str, NDArray[np.float64]], rates: dict[str, float]) -> list[dict[str, Any]]:
    """The published numbers of a set, and ours."""
    lines = []
    for i, metric in enumerate(("RMSE", "LL")):
        table = {"RMSE": "srld/table-3", "LL": "srld/table-4"}[metric]
        asked = [(f"srld/table-1/{dataset}/{method}/{metric}", method, -1) for method in ("LD", "SRLD")]
        asked += [(f"{table}/{dataset}/SRLD-{n}/{metric}", "SRLD", k) for k, n in enumerate(KEPT)]
        for pointer, method, k in asked:
            values = found[method][:, :, k, i]
            diverged = int((~np.isfinite(values)).sum())
            worst = math.inf if metric == "RMSE" else -math.inf
            mean, low, high = (worst,) * 3 if diverged else interval(values)
            origin = "published by the program" if dataset in PUBLISHED else "by the rule"
            note = f"rate {rates[method]:.3g} a training row, {origin}"
            if diverged:
                note += f"; {diverged} of {values.size} chains diverged"
            if dataset == "Boston":  # where the fourth split has a feature that is constant in its test rows
                note += f"; without split 4: {np.delete(values, 3, axis=0).mean():.3f}"
            far = values > FAR * np.median(values)
            if metric == "RMSE" and far.any():
                note += f"; {far.sum()} of {values.size} chains left the rest, without them {values[~far].mean():.3f}"
            lines.append({"pointer": pointer, "mean": mean, "low": low, "high": high, "n": values.size, "note": note})
    return lines


def measure(named: Sequence[str], store: Path, out: Path) -> None:
    """Tune and run the sets that are named, or all; the tables are written after each."""
    store.mkdir(parents=True, exist_ok=True)
    for dataset in named or SETS:
        if dataset in PUBLISHED:
            rates = PUBLISHED[dataset]
        else:
            tries, rates = tuned(SETS[dataset], store)
            add_lines(tries, out / "rates.csv", "set")
        print(f"{dataset}: {rates}", flush=True)
        lines = pd.DataFrame(lines_of(dataset, final(SETS[dataset], rates, store), rates))
        add_lines(lines, out / "rule.csv")
        print(lines.to_string(), flush=True)
