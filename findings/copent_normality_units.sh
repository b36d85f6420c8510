#!/usr/bin/env bash
# copent 0.5.7: `mvnt`, a statistic of multivariate normality, the copula entropy against that of a normal distribution.
# Guess: about 0 for normal draws in any unit, since copula entropies do not depend on the scales of the margins.
# Seen: 0.06, -4.55 and -9.15 after multiplying by 1, 10 and 100: the determinant is that of the covariance, not of the correlation.
. "$(dirname "$0")/_packages.sh" copent==0.5.7 numpy==2.1.3 scipy==1.16.3
"$python" - <<'PY'
import numpy as np
from copent import copent, mvnt

x = np.random.default_rng(0).normal(size=(1000, 2))
found = {scale: (round(float(mvnt(scale * x)), 2), round(float(copent(scale * x)), 2)) for scale in (1, 10, 100)}
print(f"by the scale (statistic, copula entropy): {found}")
same = len({entropy for _, entropy in found.values()}) == 1
raise SystemExit(not (same and abs(found[1][0]) < 0.3 and found[10][0] < -4 and found[100][0] < -8))
PY
