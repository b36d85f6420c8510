#!/usr/bin/env bash
# mcmc-diagnostics 0.1: `is_stationarity` of a chain, the test of Heidelberger and Welch.
# Guess: true for a chain without drift, false for one that drifts by three standard deviations.
# Seen: the other way round: it is true where the p-value under stationarity, which is right, is below the level.
. "$(dirname "$0")/_packages.sh" mcmc-diagnostics==0.1 numpy==2.1.3 scipy==1.16.3
"$python" - 2>/dev/null <<'PY'
import numpy as np
from mcmc_diagnostics import cramer_von_mises_test as test

random = np.random.default_rng(0)
called = {}
for drift in (0.0, 3.0):
    chains = random.normal(size=(50, 2000)) + drift * np.linspace(0, 1, 2000)
    p = float(np.median([test.calculate_p_value(x) for x in chains]))
    called[drift] = sum(bool(test.is_stationarity(x)) for x in chains)
    print(f"drift {drift:g}: median p-value {p:.2g}, called stationary {called[drift]} of 50")
raise SystemExit(not (called[0.0] < 20 and called[3.0] == 50))
PY
