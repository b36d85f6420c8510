"""Certified predictions of the network posteriors of the UCI sets, by two samplers from two kinds of start.

    PARVIBENCH_DATA_DIR=data OMP_NUM_THREADS=1 python tests/studies/predictive_references.py WORK [SET...] --minutes M

The same command goes on where it stopped, and with further sets. A set is written as soon as its evidence passes; the
evidence so far is in ``WORK/<task>.json`` in any case. ``--write`` runs nothing and judges what is there. On a GPU
(``--device cuda``) a step costs the same for many more chains.

Passed: wine-red, 24,000 and 23,000 steps, 9 minutes of a core; on an H200 (``--device cuda --chains 32``), steps of adjusted MCLMC
and HMC: yacht, 264,000 and 1.92 million, ``--warmup 30000``; Boston, 760,000 and 1.09 million in six minutes,
``--warmup 20000 --every 1000``. Refused on that card, in nine minutes beside Boston (before, with 392,000 and 398,000 steps of
MCLMC, the largest R-hat was 1.29 and 1.34):

==========  ========================  =========================  ====================  ===========  ==================
set         steps (MCLMC, HMC)        largest R-hat              least ESS             largest z    R-hat, both runs
==========  ========================  =========================  ====================  ===========  ==================
concrete    940,000, 1.16 million     1.18, 1.22                 121, 103              5.3 of 4.2   1.14
energy      1.16, 1.58 million        1.19, 1.34                 114, 74               9.1 of 4.1   1.12
==========  ========================  =========================  ====================  ===========  ==================

So these two lack some ten times what they had, one and a half hours of such a card each, if their chains visit all that matters.

Hidden units may trade places and the weights have many modes, so no run visits them all, and nothing is claimed of
weights: all diagnostics are of predictions (the regression function at every test point and the held-out log
likelihood), where modes that differ by a permutation are one. Chains stuck in modes that differ as functions raise R-hat.

Both runs are in the coordinates u = sqrt(lambda) w, in which the posterior of most weights is near N(0, 1) and the
precision lambda moves freely; given w it has a relative spread of sqrt(2 / D), and is slow. ``wide``: adjusted MCLMC,
self-tuned, from the task's own start (weights of another scale, lambda from its prior). ``modes``: HMC, its step adapted
for ``WARMUP`` integrator steps, from networks trained by Adam. States are float32; the difference from float64 in log
density is recorded.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from parvibench.core.metric import Context
from parvibench.core.reference import Certified
from parvibench.core.registry import has_reference, load_algorithm, load_metric, load_task
from parvibench.core.streams import Streams, derive_seed
from parvibench.core.target import Target
from parvibench.core.task import Problem, Task
from parvibench.harness.run.compiling import Fused
from parvibench.reference import build as built
from parvibench.reference.build import default_folder
from parvibench.reference.gates import agreement, diagnostics

SEED = 20261125
SPLITS, CHAINS = 3, 16
SETS = ("wine-red", "boston", "concrete", "energy", "yacht")
#: Integrator steps of a trajectory of HMC, between records, and of the warm-up; records in a segment, the unit of resuming.
TRAJECTORY, EVERY, WARMUP, RECORDS = 100, 100, 4000, 10
#: Records a chain that are judged and shipped from, evenly spread, of those after the burn-in.
MOST_RECORDS = 500
ADAM = 1500
ROLES = ("wide", "modes")
#: Gates: of every test point and of the held-out log likelihood, of both runs. Of some 500 such numbers the largest R-hat of
#: independent draws is 1.01 at these lengths.
MAX_RHAT, MIN_ESS = 1.02, 500
#: Of the log likelihood over the chains of both runs together, which are what is shipped.
MAX_POOLED_RHAT = 1.01
STATES, FINGERPRINT, DRAWS = 48, 20, 300
SIZES = (20, 50, 100)
FLOOR_SETS = 200
FLOORED = (
    "predictive_w2", "predictive_mean_error", "predictive_sd_error", "predictive_nll_error", "predictive_coverage_error",
)  # fmt: skip


class NonCentred(Target):
    """The posterior in (sqrt(lambda) w, log gamma, log lambda)."""

    def __init__(self, base: Target) -> None:
        self.base, self.dim = base, base.dim

    def to_base(self, z: Tensor) -> Tensor:
        return torch.cat([z[..., :-2] * (-0.5 * z[..., -1:]).exp(), z[..., -2:]], -1)

    def from_base(self, x: Tensor) -> Tensor:
        return torch.cat([x[..., :-2] * (0.5 * x[..., -1:]).exp(), x[..., -2:]], -1)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.base.log_density(self.to_base(x)) - 0.5 * (self.dim - 2) * x[..., -1]

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.log_density_and_score(x)[1]

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        w, half = self.to_base(x), 0.5 * (self.dim - 2)
        value, score = self.base.log_density_and_score(w)
        by_lambda = score[..., -1] - half - 0.5 * (score[..., :-2] * w[..., :-2]).sum(-1)
        parts = [score[..., :-2] * (-0.5 * x[..., -1:]).exp(), score[..., -2:-1], by_lambda[..., None]]
        return value - half * x[..., -1], torch.cat(parts, -1)


@dataclass
class Run:
    """One sampler on all splits of a task, as far as it has come."""

    name: str
    role: str  # wide or modes
    work: Path
    device: str = "cpu"
    chains: int = CHAINS
    warmup: int = WARMUP
    every: int = EVERY

    def __post_init__(self) -> None:
        self.segment = RECORDS * self.every
        self.task = load_task(self.name)
        ids = tuple(range(SPLITS))
        base = self.task.target(ids, self.device, torch.float32)
        self.target = NonCentred(base)
        self.held = self.task.predictive(ids, self.device, torch.float32)
        streams = Streams(derive_seed(SEED, self.name, self.role), ids, self.device, torch.float32)
        self.problem = Problem(self.target, streams, start=lambda *_: self.start(), particles=self.chains)
        self.problem.evaluate_by(Fused)  # a density of a hundred small networks is launches for the most part
        self.algorithm = load_algorithm("adjusted-mclmc" if self.role == "wide" else "hmc")
        self.settings = self.algorithm.make_settings({"warmup_steps": self.warmup} if self.role == "wide" else {})
        self.file = self.work / f"{self.name}-{self.role}.npz"

    def start(self) -> Tensor:
        """The task's own start, or networks trained by Adam from there with lambda at its start's median."""
        x = self.task.initial(self.target.base, self.chains, self.problem.streams.generators("init")).to(
            self.device, torch.float32
        )
        if self.role == "modes" and not self.file.is_file():
            x[..., -1] = x[..., -1].median()
            held = x.clone()
            first, second = torch.zeros_like(x), torch.zeros_like(x)
            for k in range(1, ADAM + 1):
                score = self.target.base.score(x)
                first, second = 0.9 * first + 0.1 * score, 0.99 * second + 0.01 * score.square()
                x = x + 0.01 * (first / (1 - 0.9**k)) / ((second / (1 - 0.99**k)).sqrt() + 1e-8)
                x[..., -1] = held[..., -1]
        return self.target.from_base(x)

    def segments(self) -> Iterator[int]:
        """Go on, segment by segment; each leaves its records in a file, and then the state."""
        state: Any = self.algorithm.init(self.problem, self.settings, self.problem.streams, 4 * self.warmup)
        spec, done, eta = tree_flatten(state)[1], 0, 1e-6
        if self.file.is_file():
            with np.load(self.file) as stored:
                leaves = [stored[f"leaf{i}"] for i in range(spec.num_leaves)]
                done, eta = int(stored["done"]), float(stored["eta"])
            old = tree_flatten(state)[0]
            new = [
                torch.from_numpy(v).to(self.device) if isinstance(o, Tensor) else type(o)(v)
                for o, v in zip(old, leaves, strict=True)
            ]
            state = tree_unflatten(new, spec)
        while True:
            began, f, more = time.perf_counter(), [], []
            for now, step, info in self.records(state, done, eta):
                x, accepted = self.target.to_base(now.x), info
                means, noise = self.held.predict(x)
                f.append(means.cpu().numpy())
                more.append(torch.stack([noise.log(), x[..., -1]], -1).cpu().numpy())
                state, eta = now, step
            done += self.segment
            arrays = {"f": np.stack(f), "more": np.stack(more), "x": x[None].cpu().numpy(), "eta": eta}
            seconds = time.perf_counter() - began
            self.store(
                self.file.with_stem(f"{self.file.stem}-{done:08d}"), seconds=seconds, accepted=accepted, **arrays
            )
            leaves = [v.cpu() if isinstance(v, Tensor) else v for v in tree_flatten(state)[0]]
            self.store(self.file, done=done, eta=eta, **{f"leaf{i}": np.asarray(v) for i, v in enumerate(leaves)})
            yield done

    def store(self, file: Path, **arrays: Any) -> None:
        """All of it or nothing, since others may read."""
        part = self.file.with_suffix(".part.npz")
        np.savez(part, **arrays)
        part.replace(file)

    def records(self, state: Any, done: int, eta: float) -> Iterator[tuple[Any, float, np.ndarray]]:
        """The states after every ``every`` integrator steps of one segment, the step of HMC, and the acceptance."""
        stride = 1 if self.role == "wide" else TRAJECTORY
        for at in range(done, done + self.segment, self.every):
            addresses = range(at, at + self.every, stride)
            for self.problem.streams.step in addresses:
                state, info = self.algorithm.step(self.problem, self.tuned(eta), state, self.problem.streams)
                if self.role == "modes" and self.problem.streams.step < self.warmup:
                    slower = 2 / (1 + self.problem.streams.step / 1000) ** 0.6
                    eta *= float(np.exp((float(info.acceptance.mean()) - 0.75) * slower))
            if self.role == "wide":
                eta = float(info.step_length.mean())
            yield state, eta, info.acceptance.cpu().numpy()

    def tuned(self, eta: float) -> Any:
        """Settings with the step size so far, which adjusted MCLMC keeps in its state."""
        if self.role == "wide":
            return self.settings
        return self.algorithm.make_settings({"step_size": eta, "leapfrog_steps": TRAJECTORY, "jitter": 0.3})


def history(run: Run) -> dict[str, Any]:
    """Records after the burn-in, evenly spread, (draws, R, N, ...), and what they took."""
    files = sorted(run.work.glob(f"{run.name}-{run.role}-*.npz"))
    parts = []
    for file in files[max(run.warmup // run.segment, len(files) // 6) :]:
        with np.load(file) as stored:
            parts.append({key: stored[key] for key in stored.files})
    seconds = 0.0
    for file in files:
        with np.load(file) as stored:
            seconds += float(stored["seconds"])
    found = {key: np.concatenate([p[key] for p in parts]) for key in ("f", "more", "x")}
    found |= {key: found[key][:: -(-len(found[key]) // MOST_RECORDS)] for key in ("f", "more")}
    return found | {
        "steps": len(files) * run.segment, "seconds": seconds, "eta": float(parts[-1]["eta"]),
        "accepted": float(np.mean([p["accepted"] for p in parts])),
    }  # fmt: skip


def log_likelihoods(run: Run, found: dict[str, Any]) -> np.ndarray:
    """Held-out log likelihood of single draws, per row, (draws, R, N)."""
    y, sd = run.held.y.cpu().numpy()[:, None], np.exp(found["more"][..., 0])[..., None]
    z = (y - found["f"]) / sd
    return cast(np.ndarray, (-0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi)).mean(-1))


def evidence(runs: dict[str, Run]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What the certificate rests on, and the records."""
    records = {role: history(run) for role, run in runs.items()}
    record: dict[str, Any] = {}
    of: dict[str, list[Any]] = {}
    likelihoods: dict[str, np.ndarray] = {}
    for role, run in runs.items():
        found = records[role]
        likelihoods[role] = log_likelihoods(run, found)
        values = np.concatenate([found["f"], likelihoods[role][..., None], found["more"]], -1)
        with np.errstate(divide="ignore", invalid="ignore"):  # chains that stand still
            of[role] = [diagnostics(torch.from_numpy(values[:, r]).double()) for r in range(SPLITS)]
        judged = {k: np.nan_to_num(np.stack([d[k][:-2] for d in of[role]])) for k in of[role][0]}  # without precisions
        record[role] = {
            "algorithm": run.algorithm.name, "coordinates": "non-centred", "chains": run.chains,
            "steps": found["steps"], "burn_in": max(run.warmup, found["steps"] // 6), "draws": len(values),
            "step_length": float(f"{found['eta']:.4g}"), "accepted": round(found["accepted"], 3),
            "seconds": round(found["seconds"], 1),
            "rhat_max": round(float(judged["rhat"].max()), 4),
            "rhat_of_log_likelihood": [round(float(d["rhat"][-3]), 4) for d in of[role]],
            "ess_bulk_min": round(float(judged["ess_bulk"].min())), "ess_tail_min": round(float(judged["ess_tail"].min())),
            "ess_bulk_median": round(float(np.median(judged["ess_bulk"]))),
            "mcse_mean_max_in_sd": float(f"{(judged['mcse_mean'] / judged['sd']).max():.3g}"),
            "log_likelihood": [[float(f"{d[k][-3]:.5g}") for k in ("mean", "mcse_mean")] for d in of[role]],
            "log_lambda": [[float(f"{d[k][-1]:.4g}") for k in ("mean", "rhat", "ess_bulk")] for d in of[role]],
        }  # fmt: skip
    joined = [
        {k: np.concatenate([d[k][:-2] for d in of[role]]) for k in ("mean", "sd", "mcse_mean", "mcse_sd")}
        for role in ROLES
    ]
    record["agreement"] = agreement(*joined)  # one Bonferroni family: all points of all splits, and the likelihoods
    run = runs["wide"]
    x = torch.from_numpy(records["wide"]["x"][-1])
    fine = run.task.target(range(SPLITS), "cpu", torch.float64).log_density(x.double())
    gap = run.target.base.log_density(x.to(run.device)).cpu().double() - fine
    record["float32_log_density_error"] = float(f"{(gap - gap.mean(1, keepdim=True)).abs().max():.2g}")
    gates = {
        f"{role}: {what}": ok
        for role in runs
        for what, ok in (
            (f"R-hat of predictions and log likelihood < {MAX_RHAT}", record[role]["rhat_max"] < MAX_RHAT),
            (f"bulk and tail ESS of predictions >= {MIN_ESS}",
             min(record[role]["ess_bulk_min"], record[role]["ess_tail_min"]) >= MIN_ESS),
        )
    }  # fmt: skip
    compared = record["agreement"]
    apart = max(compared["largest_z_of_means"], compared["largest_z_of_sds"])
    gates["two samplers agree"] = apart <= compared["z_limit"]
    length = min(len(likelihoods[role]) for role in ROLES)
    both = np.concatenate([likelihoods[role][-length:] for role in ROLES], 2)  # (draws, R, 2 N)
    rhat = diagnostics(torch.from_numpy(both).double().transpose(1, 2))["rhat"]
    record["pooled_rhat_of_log_likelihood"] = [round(float(v), 4) for v in rhat]
    gates[f"R-hat of the log likelihood, both runs together < {MAX_POOLED_RHAT}"] = float(rhat.max()) < MAX_POOLED_RHAT
    record["gates"] = gates
    return record, records


def write(runs: dict[str, Run], record: dict[str, Any], records: dict[str, dict[str, Any]], folder: Path) -> Path:
    """The reference: both runs pooled."""
    task = runs["wide"].task
    length = min(len(r["f"]) for r in records.values())
    pool = {k: np.concatenate([r[k][-length:] for r in records.values()], 2) for k in ("f", "more")}
    f = torch.from_numpy(pool["f"]).double().permute(1, 0, 2, 3)  # (R, draws, 2 N, T)
    noise = torch.from_numpy(pool["more"][..., 0]).double().exp().permute(1, 0, 2)
    generator = torch.Generator().manual_seed(SEED)
    mean, sd = f.mean((1, 2)), f.flatten(1, 2).std(1)
    rows = torch.randperm(f.shape[1] * f.shape[2], generator=generator)[:DRAWS]
    drawn = ((f.flatten(1, 2)[:, rows] - mean[:, None]) / sd[:, None]).half()
    shipped = {
        "mean": mean.numpy(),
        "sd": sd.numpy(),
        "draws": drawn.numpy(),
        "noise": noise.flatten(1)[:, rows].float().numpy(),
    }
    y = runs["wide"].held.y.cpu().double()
    z = (y[:, None, None] - f) / noise[..., None]
    log_p = (-0.5 * z.square() - noise[..., None].log() - 0.5 * math.log(2 * math.pi)).flatten(1, 2).logsumexp(1)
    shipped["log_p"] = (log_p - math.log(f.shape[1] * f.shape[2])).numpy()
    tensors = {k: torch.from_numpy(v).double() for k, v in shipped.items()}
    floors = certified_floors(task, y, f, noise, tensors, generator, SIZES, FLOOR_SETS)
    length = min(len(r["x"]) for r in records.values())
    x = torch.from_numpy(np.concatenate([r["x"][-length:] for r in records.values()], 2)).permute(1, 0, 2, 3)
    times = torch.linspace(0, x.shape[1] * x.shape[2] - 1, STATES).long()
    states = x.flatten(1, 2)[:, times]
    target = task.target(range(SPLITS), "cpu", torch.float64)
    scores = target.score(states[:, :FINGERPRINT].double()).float()
    certificate = {
        **built.identity(task), "kind": "predictions", **built.origin(SEED), "splits": SPLITS,
        "method": "two samplers from two kinds of start, pooled; convergence is judged on the predictions, not on the "
        "weights, whose modes no run visits all",
        "made_for": list(SIZES), "run": record, "floors": built.floor_summaries(floors),
    }  # fmt: skip
    return built.write(
        folder, task.name, certificate, shipped | {"states": states.numpy(), "scores": scores.numpy()}, floors
    )


@dataclass
class Drawn:
    """Samples are predictions at the T points and the logarithm of the noise's sd themselves."""

    y: Tensor
    certified: Certified | None

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        return samples[..., :-1], samples[..., -1].exp()


def certified_floors(
    task: Task,
    y: Tensor,
    f: Tensor,
    noise: Tensor,
    shipped: dict[str, Tensor],
    generator: torch.Generator,
    sizes: tuple[int, ...],
    sets: int,
) -> dict[str, dict[int, np.ndarray]]:
    """Every metric of n draws picked at random from the runs, f (R, draws, chains, T), against what is shipped.

    Means and sds are those of resampled chains, which gives the reference its own sampling error.
    """  # fmt: skip
    metrics = [load_metric(name) for name in FLOORED]
    found: dict[str, dict[int, list[float]]] = {name: {n: [] for n in sizes} for name in FLOORED}
    rows = torch.cat([f, noise.log()[..., None]], -1).flatten(1, 2)
    centred = f - f.mean((1, 2), keepdim=True)
    first, second = centred.mean(1), centred.square().mean(1)  # (R, chains, T)
    for i in range(sets):
        r, chains = i % len(f), f.shape[2]
        chosen = torch.randint(chains, (chains,), generator=generator)
        shift = first[r, chosen].mean(0)
        sd = (second[r, chosen].mean(0) - shift.square()).sqrt()
        mean = f[r].mean((0, 1)) + shift
        known = Certified(mean[None], sd[None], *(shipped[k][r][None] for k in ("draws", "noise", "log_p")))
        context = Context(task, predictive=Drawn(y[r][None], known))
        for n in sizes:
            x = rows[r, torch.randint(rows.shape[1], (n,), generator=generator)][None]
            for metric in metrics:
                found[metric.name][n].append(float(metric(x, context)))
    return {name: {n: np.sort(values) for n, values in table.items()} for name, table in found.items()}


def main() -> None:
    """Run what is due, and write what passes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--minutes", type=float, default=30.0, help="for each set")
    parser.add_argument("--only", choices=ROLES, help="run this sampler alone, as on a second core, and judge nothing")
    parser.add_argument("--write", action="store_true", help="judge what is there")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--chains", type=int, default=CHAINS, help="of each sampler and split")
    parser.add_argument("--warmup", type=int, default=WARMUP, help="integrator steps")
    parser.add_argument("--every", type=int, default=EVERY, help="integrator steps between records, a multiple of 100")
    parser.add_argument("--to", type=Path, default=default_folder(), help="folder of the references")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    for name in (f"bnn-{s.removeprefix('bnn-')}" for s in options.sets):
        if has_reference(name) or (options.write and not list(options.work.glob(f"{name}-*-*.npz"))):
            continue
        with torch.inference_mode():
            how = (options.work, options.device, options.chains, options.warmup, options.every)
            runs = {role: Run(name, role, *how) for role in ROLES if options.only in (None, role)}
            began, checked = time.monotonic(), 0
            turns = {role: run.segments() for role, run in runs.items()}
            passed = False
            while not passed and (options.write or time.monotonic() - began < 60 * options.minutes):
                done = 0 if options.write else min([next(turn) for turn in turns.values()])
                if options.write or (options.only is None and done >= 5 * options.warmup and done >= 1.1 * checked):
                    checked = done
                    record, records = evidence(runs)
                    (options.work / f"{name}.json").write_text(json.dumps(record, indent=1))
                    print(name, done, json.dumps(record), flush=True)
                    passed = all(record["gates"].values())
                    if passed:
                        print(write(runs, record, records, options.to), flush=True)
                if options.write:
                    break


if __name__ == "__main__":
    main()
