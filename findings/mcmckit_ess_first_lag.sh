#!/usr/bin/env bash
# mcmckit 0.3.1: `ess`, Geyer's initial positive sequence.
# Guess: for an autoregressive chain with coefficient a the number of draws times (1 - a) / (1 + a): 0.54, 0.33, 0.18 of them for 0.3, 0.5, 0.7.
# Seen: 1, 0.9, 0.3 of them: the sum of autocorrelations begins at lag 2, so that the largest is left out.
. "$(dirname "$0")/_packages.sh" mcmckit==0.3.1 numpy==2.1.3 scipy==1.16.3
"$python" - 2>/dev/null <<'PY'
import numpy as np
from scipy.signal import lfilter
from mcmckit.core.diagnostics import ess

random = np.random.default_rng(0)
n, share = 4000, {}
for a in (0.3, 0.5, 0.7):
    start = random.normal(size=(200, 1)) / (1 - a**2) ** 0.5
    chains = lfilter([1.0], [1.0, -a], random.normal(size=(200, n)), axis=1, zi=a * start)[0]
    spread = (1 / (1 - a**2) / n) / chains.mean(axis=1).var()
    share[a] = float(ess(chains.T).mean() / n)
    print(f"coefficient {a}: {share[a]:.2f} of the draws (formula {(1 - a) / (1 + a):.2f}, from the spread of 200 means {spread:.2f})")
raise SystemExit(not (share[0.3] > 0.95 and share[0.5] > 0.75 and 0.25 < share[0.7] < 0.4))
PY
