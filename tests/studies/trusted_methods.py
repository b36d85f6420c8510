"""Is the method that a run without reference says to trust right, on models of known truth, and is none where all fail?

    python tests/studies/trusted_methods.py [SEED [SCORE_EVALUATIONS]]

Exact draws judge all samples of a method, thinned to their effective number: KS tests of the coordinates and of the log density.
"""

import sys
import tempfile
from typing import Any

import numpy as np
import torch
from scipy import stats

import parvibench as pb
from parvibench.reporting.facts.agreement import draws_of, without_reference

SHAPE = torch.tensor([1.5, 3.0, 8.0, 20.0, 2.0, 5.0], dtype=torch.float64)
SCALES = torch.logspace(0, 1.65, 15, dtype=torch.float64)
ROTATION = torch.linalg.qr(torch.randn(15, 15, generator=torch.Generator().manual_seed(3), dtype=torch.float64))[0]
APART = torch.tensor([4.5, 0.0, 0.0], dtype=torch.float64)


def funnel(rng: np.random.Generator, n: int) -> np.ndarray:
    v = 3 * rng.normal(size=(n, 1))
    return np.hstack([v, np.exp(v / 2) * rng.normal(size=(n, 6))])


OPTIONS: dict[str, Any] = {"algorithms": ["nuts", "chees-hmc", "mala", "full-rank"], "replicates": 4, "particles": 20, "samples": 200, "workers": 0, "tracking": False}  # fmt: skip
#: Log density, and exact draws (n, D).
MODELS = {
    "conjugate-rates": (lambda x: (SHAPE * x - x.exp()).sum(), lambda rng, n: np.log(rng.gamma(SHAPE.numpy(), size=(n, 6)))),
    "correlated": (lambda x: -0.5 * ((x @ ROTATION) / SCALES).square().sum(), lambda rng, n: (rng.normal(size=(n, 15)) * SCALES.numpy()) @ ROTATION.T.numpy()),
    "heavy-tails": (lambda x: -4 * torch.log1p(x.square().sum() / 3), lambda rng, n: rng.normal(size=(n, 5)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3)),
    "mild-tails": (lambda x: -7 * torch.log1p(x.square().sum() / 6), lambda rng, n: rng.normal(size=(n, 8)) / np.sqrt(rng.chisquare(6, (n, 1)) / 6)),
    "funnel": (lambda x: -(x[0] ** 2) / 18 - 0.5 * x[1:].square().sum() * (-x[0]).exp() - 3 * x[0], funnel),
    "two-modes": (lambda x: torch.logaddexp(np.log(0.3) - 0.5 * (x - APART).square().sum(), np.log(0.7) - 0.5 * (x + APART).square().sum()), lambda rng, n: rng.normal(size=(n, 3)) + np.where(rng.random((n, 1)) < 0.3, 1, -1) * APART.numpy()),
}  # fmt: skip


def study(name: str, seed: int, budget: int) -> None:
    """Print the method that is trusted, and the p-value of every method."""
    density, exact = MODELS[name]
    truth = exact(np.random.default_rng(seed), 20_000)
    task = pb.task(density, dim=truth.shape[1], name=f"trusted-{name}", exact=None)
    with tempfile.TemporaryDirectory() as out:
        results = pb.run(tasks=[task], seed=seed, budget={"score_evaluations": budget}, out=out, **OPTIONS)
        answer, found = without_reference(results, task.name), {c.label: draws_of(results, c) for c in results.cells}
    print(f"{name}: {'none' if answer is None or not answer.trusted else answer.trusted}")
    for label, (samples, sizes) in ((k, v) for k, v in found.items() if v is not None):
        x = samples.reshape(-1, truth.shape[1])
        x = x[np.linspace(0, len(x) - 1, int(min(sizes.sum(), len(x)))).astype(int)]
        ours, theirs = (np.c_[rows, torch.func.vmap(density)(torch.from_numpy(rows))] for rows in (x, truth))
        p = min(1.0, ours.shape[1] * min(stats.ks_2samp(*pair).pvalue for pair in zip(ours.T, theirs.T, strict=True)))
        print(f"  {label}: p {p:.3g} of {len(x)} effective draws", flush=True)


if __name__ == "__main__":
    seed, budget = map(int, [*sys.argv[1:], *("1", "100000")[len(sys.argv) - 1 :]])
    for model in MODELS:
        study(model, seed, budget)
