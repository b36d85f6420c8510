#!/usr/bin/env bash
# dcor 0.7 and SciPy 1.17.1: functions of the same name, `energy_distance`.
# Guess: the same number for the same two samples, in one dimension.
# Seen: dcor's is the square of SciPy's: with the data times four it is four times as large, SciPy's twice.
. "$(dirname "$0")/_packages.sh" dcor==0.7 numpy==2.4.6 scipy==1.17.1
"$python" - <<'PY'
import dcor
import numpy as np
from scipy import stats

rng = np.random.default_rng(0)
x, y = rng.normal(size=500), rng.normal(1, 1, size=400)
ours, scipys = ([f(a * x, a * y) for a in (1, 4)] for f in (dcor.energy_distance, stats.energy_distance))
print(f"dcor {ours[0]:.4f}, SciPy {scipys[0]:.4f}, its square {scipys[0] ** 2:.4f}; data times 4: {ours[1] / ours[0]:.2f} and {scipys[1] / scipys[0]:.2f} times")
raise SystemExit(not (np.allclose(ours, np.square(scipys)) and np.isclose(ours[1] / ours[0], 4)))
PY
