#!/usr/bin/env bash
# kanga 0.0.20: `mc_se`, the Monte Carlo standard error of the means of a chain.
# Guess: for independent standard normal draws 1 / sqrt(n): 0.1, 0.05, 0.025 for 100, 400, 1,600 of them.
# Seen: about 1 for each: the square root of the long-run variance, which is not divided by the number of draws. The error never shrinks.
. "$(dirname "$0")/_packages.sh" kanga==0.0.20 numpy==2.4.6 scipy==1.17.1 statsmodels==0.15.0
"$python" - 2>/dev/null <<'PY'
import numpy as np
from kanga.stats import mc_se

random = np.random.default_rng(0)
found = []
for n in (100, 400, 1600):
    x = random.normal(size=(n, 2))
    means = random.normal(size=(500, n)).mean(axis=1)
    seen = {method: float(mc_se(x, method=method, b=int(n**0.5), r=1).mean()) for method in ("iid", "bm")}
    if n < 1000:
        seen["inse"] = float(mc_se(x).mean())
    found += [abs(value - 1) < 0.4 for value in seen.values()]
    print(f"{n} draws: " + ", ".join(f"{method} {value:.2f}" for method, value in seen.items()) + f" (spread of 500 means: {means.std():.3f})")
raise SystemExit(not all(found))
PY
