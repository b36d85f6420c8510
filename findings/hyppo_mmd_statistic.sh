#!/usr/bin/env bash
# hyppo 0.5.2: the statistic of `hyppo.ksample.MMD`.
# Guess: the squared maximum mean discrepancy of the two samples, with the kernel whose width is the median distance.
# Seen: another number, a normalised dependence measure between sample and label: below a tenth of the squared MMD here.
. "$(dirname "$0")/_packages.sh" hyppo==0.5.2 numpy==2.4.6 scipy==1.17.1
"$python" - <<'PY'
import numpy as np
from hyppo.ksample import MMD
from scipy.spatial.distance import cdist, pdist

rng = np.random.default_rng(0)
a, b = rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 1
width = np.median(pdist(np.vstack([a, b])))
k = lambda x, y: np.exp(-((cdist(x, y) / width) ** 2) / 2).mean()
given, squared = MMD().statistic(a, b), k(a, a) + k(b, b) - 2 * k(a, b)
print(f"hyppo {given:.4f}, squared MMD {squared:.4f}")
raise SystemExit(not given < squared / 2)
PY
