#!/usr/bin/env bash
# tarp 0.1.1: `get_tarp_coverage(bootstrap=True, seed=)`, tests of accuracy with random points.
# Guess: the seed repeats a bootstrap over simulations, which shows how much the coverage varies.
# Seen: the generator is seeded anew in each round, so that all rounds but for the first swap the same simulation: a band of no width
# where fresh data vary by 0.036. Without a seed each round overwrites one more simulation, in the caller's arrays: 38% after 100.
. "$(dirname "$0")/_packages.sh" tarp==0.1.1 deprecation==2.1.0 tqdm==4.70.1 numpy==2.1.3
"$python" - 2>/dev/null <<'PY'
import numpy as np
import tarp

random = np.random.default_rng(0)


def data(count=200):
    centre = random.normal(size=(count, 2))
    return centre + random.normal(size=(count, count, 2)), centre + random.normal(size=(count, 2))


def half(coverage, level):
    return np.interp(0.5, level, coverage)


options = {"norm": True, "num_alpha_bins": 20}
fresh = np.std([half(*tarp.get_tarp_coverage(*data(), **options)) for _ in range(100)])
spread, changed = {}, {}
for seed in (1, None):
    samples, theta = data()
    before = theta.copy()
    rounds, level = tarp.get_tarp_coverage(samples, theta, bootstrap=True, num_bootstrap=100, seed=seed, **options)
    spread[seed], changed[seed] = np.std([half(r, level) for r in rounds[1:]]), (theta != before).any(1).mean()
print(f"sd of the coverage at 0.5: fresh data {fresh:.3f}, bootstrap {spread}; simulations overwritten {changed}")
raise SystemExit(not (fresh > 0.02 and spread[1] < 1e-12 < spread[None] and 0.2 < changed[None] < 0.6))
PY
