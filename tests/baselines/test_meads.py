"""MEADS: equal to a plain program of its authors' algorithm, scales with the target, exact law from the first step."""

import math

import numpy as np
import pytest
import torch
from sampler_toys import Bent, Gaussian, Run, make_problem
from scipy import stats

from parvibench.baselines.meads import largest_eigenvalue
from parvibench.core.errors import UnsupportedError
from parvibench.core.streams import Streams


def test_the_eigenvalue_is_estimated_by_traces() -> None:
    rows = torch.randn(5, 9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for S in (rows, rows.mT):
        M = S.mT @ S / S.shape[1]
        torch.testing.assert_close(
            largest_eigenvalue(S), (M @ M).diagonal(dim1=1, dim2=2).sum(1) / M.diagonal(dim1=1, dim2=2).sum(1)
        )


@pytest.mark.parametrize(
    ("chains", "settings"), [(11, {}), (6, {}), (12, {"folds": 3, "step_multiplier": 1.4, "damping_slowdown": 4.0})]
)
def test_it_is_the_published_algorithm(chains: int, settings: dict[str, float]) -> None:
    """Two replicates, three steps, against one chain at a time in numpy."""
    target = Bent()
    run = Run("meads", make_problem(target, [0, 3], particles=chains), 100, **settings)
    start, end = run.state, run.steps(3).state
    K = min(int(settings.get("folds", 4)), chains // 2)
    n, multiplier, slowdown = chains // K, settings.get("step_multiplier", 0.5), settings.get("damping_slowdown", 1.0)

    def at(q: np.ndarray) -> tuple[float, np.ndarray]:
        density, score = target.log_density_and_score(torch.from_numpy(q)[None, None])
        return float(density), score[0, 0].numpy()

    def largest(rows: list[np.ndarray]) -> float:
        each = sum(a @ a for a in rows)
        return sum((a @ b) ** 2 for a in rows for b in rows) / len(rows) / each

    rejected = 0
    for r in range(2):
        x, p, u = (a[r].numpy().copy() for a in (start.x, start.p, start.u))
        streams = Streams(7, [0, 3], dtype=torch.float64)
        for step in range(3):
            streams.step = step
            order = np.argsort(streams.uniform("algorithm", (chains,), index=1)[r].numpy()).tolist()
            folds = [order[k * n : (k + 1) * n] for k in range(K)]
            noise = streams.normal("noise", (K, (K - 1) * n, 2))[r].numpy()
            for k in range(K):
                taught = []
                for fold in folds:
                    sigma = np.std([x[i] for i in fold], axis=0)
                    eps = min(1.0, multiplier / math.sqrt(largest([at(x[i])[1] * sigma for i in fold])))
                    z = [x[i] / sigma for i in fold]
                    centre = sum(z) / n
                    gamma = max(1 / math.sqrt(largest([a - centre for a in z])), slowdown / ((step * K + k + 1) * eps))
                    taught.append((eps * sigma, 1 - math.exp(-2 * eps * gamma)))
                rows = iter(noise[k])
                for j in range(K):
                    if j == k:
                        continue
                    length, alpha = taught[j - 1]
                    for i in folds[j]:
                        p0 = math.sqrt(1 - alpha) * p[i] + math.sqrt(alpha) * next(rows)
                        v = (u[i] + 1 + alpha / 2) % 2 - 1
                        half = p0 + length / 2 * at(x[i])[1]
                        y = x[i] + length * half
                        p1 = half + length / 2 * at(y)[1]
                        a = math.exp(at(y)[0] - p1 @ p1 / 2 - at(x[i])[0] + p0 @ p0 / 2)
                        x[i], p[i], u[i] = (y, p1, v / a) if abs(v) < a else (x[i], -p0, v)
                        rejected += abs(v) >= a
        for ours, plain in ((end.x, x), (end.p, p), (end.u, u)):
            np.testing.assert_allclose(ours[r], plain, rtol=1e-9, atol=1e-10)
    assert rejected


def test_its_steps_follow_the_target_s_scales() -> None:
    """Standard deviations 0.1, 1 and 10: accepted as often as with equal ones, and as quickly decorrelated."""
    moves = []
    for precision in ([1.0, 1.0, 1.0], [100.0, 1.0, 0.01]):
        run = Run("meads", make_problem(Gaussian(precision), range(10), particles=40)).steps(100)
        scale = torch.tensor(precision, dtype=torch.float64).rsqrt()
        before = run.state.x / scale
        moves.append(
            (run.info.acceptance.mean().item(), ((run.steps(5).state.x / scale - before).square().mean((0, 1))))
        )
    assert moves[0][0] > 0.7
    assert moves[1][0] == pytest.approx(moves[0][0], abs=0.1)
    torch.testing.assert_close(moves[1][1], moves[0][1], rtol=0.25, atol=0)


def test_the_law_is_exact_from_the_first_step() -> None:
    """From N(0, I), its own target, 9 chains in 400 replicates after 3 steps: eight p > 1e-6, false alarm 8e-6."""
    problem = make_problem(Gaussian([1.0, 1.0]), range(400), particles=9)
    x = Run("meads", problem).steps(3).state.x
    for d in range(2):
        for values in (x[..., d].mean(1), x[..., d].square().mean(1) - 1, x[..., d].pow(4).mean(1) - 3):
            assert stats.ttest_1samp(values.numpy(), 0.0).pvalue > 1e-6
        assert stats.kstest(x[:, 0, d].numpy(), "norm").pvalue > 1e-6


def test_three_chains_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="needs 4 or more, not 3"):
        Run("meads", make_problem(Bent(), particles=3))
