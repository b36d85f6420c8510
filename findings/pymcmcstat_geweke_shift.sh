#!/usr/bin/env bash
# pymcmcstat 1.9.1: `ChainStatistics.geweke`, the p-value of a chain's beginning having the mean of its end.
# Guess: it does not depend on the parameter's origin.
# Seen: for a chain that drifts p is 0.015 around 0, 0.57 after adding 1, and 0.99 after adding 100: the spectrum at frequency zero is
# that of values whose mean was not subtracted. Far from 0 every chain looks stationary.
. "$(dirname "$0")/_packages.sh" pymcmcstat==1.9.1 scipy==1.11.4 numpy==1.26.4 setuptools==75.8.0
"$python" - <<'PY'
import numpy as np
from pymcmcstat.chain.ChainStatistics import geweke

chain = np.random.default_rng(0).normal(size=(5000, 1)) + 0.5 * np.linspace(0, 1, 5000)[:, None]
found = {shift: float(geweke(chain + shift)[1][0]) for shift in (0, 1, 10, 100)}
print(f"p by the shift: {found}")
raise SystemExit(not (found[0] < 0.05 and found[1] > 0.2 and found[100] > 0.9))
PY
