#!/usr/bin/env bash
# GetDist 1.7.7: `MCSamples(samples=, loglikes=)`.
# Guess: `loglikes` are log densities of the draws, as samplers give them. Seen: they are minus the log densities: with log densities the
# best fit of a standard normal is its farthest draw, -3.9, and no word of it.
. "$(dirname "$0")/_packages.sh" getdist==1.7.7 numpy==2.4.6
"$python" - <<'PY'
import numpy as np
from getdist import MCSamples

x = np.random.default_rng(0).normal(size=2000)
fits = {}
for name, loglikes in (("log density", -0.5 * x**2), ("negative of it", 0.5 * x**2)):
    stats = MCSamples(samples=x[:, None], loglikes=loglikes, names=["x"]).getLikeStats()
    fits[name] = stats.parWithName("x").bestfit_sample
    print(f"best fit given the {name}: {fits[name]:.2f}")
raise SystemExit(not (abs(fits["log density"]) == abs(x).max() and abs(fits["negative of it"]) == abs(x).min()))
PY
