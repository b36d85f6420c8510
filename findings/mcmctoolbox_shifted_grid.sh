#!/usr/bin/env bash
# mcmctoolbox 0.21.0: `func.strat_sample(x_grid, P_grid, n)` and `func.discretesample(p, n)`, both for probabilities 0.1, 0.2, 0.3, 0.4.
# Guess: each of the four values appears with its probability; on a fine symmetric grid the mean is 0.
# Seen: `strat_sample` gives the grid value before the right one, and the number 0, which is not on the grid, for the first: the last is never drawn.
# `discretesample` gives the third value for the fourth, 0.7 together.
. "$(dirname "$0")/_packages.sh" --no-deps mcmctoolbox==0.21.0 stein-thinning==0.2.0 numpy==2.1.3 scipy==1.16.3
"$python" - 2>/dev/null <<'PY'
import numpy as np
from mcmctoolbox.func import discretesample, strat_sample

np.random.seed(0)
p, grid = np.array([0.1, 0.2, 0.3, 0.4]), np.array([10.0, 20.0, 30.0, 40.0])
values, counts = np.unique(strat_sample(grid, p, 1000), return_counts=True)
print("strat_sample of 10, 20, 30, 40: " + ", ".join(f"{v:g} {c / 1000:.2f}" for v, c in zip(values, counts)))
shares = np.bincount(discretesample(p, 10_000), minlength=4) / 10_000
print(f"discretesample of 0, 1, 2, 3: {np.round(shares, 2)} (0.1, 0.2, 0.3, 0.4)")
fine = np.linspace(-5, 5, 51)
mean = float(strat_sample(fine, np.exp(-fine * fine / 2), 999).mean())
print(f"standard normal on a grid of step 0.2: mean {mean:.2f} (0)")
raise SystemExit(not (list(values) == [0, 10, 20, 30] and shares[3] == 0 and abs(shares[2] - 0.7) < 0.03 and abs(mean + 0.2) < 0.02))
PY
