#!/usr/bin/env bash
# corner 2.3.0 and dynesty 3.1.0: `quantile(x, q, weights=)` of weighted draws.
# Guess: the median of draws 0, 1, 2, 3 of which the last has 97% of the weight is 3, and that of their negatives -3.
# Seen: 1.5 and -2.5: the weight of the largest draw does not count. The weights of the draws before it are normalised by their own sum.
. "$(dirname "$0")/_packages.sh" corner==2.3.0 dynesty==3.1.0 numpy==2.4.6 scipy==1.17.1 matplotlib==3.11.2
"$python" - 2>/dev/null <<'PY'
import corner
import numpy as np
from dynesty.utils import quantile

found = {}
for name, function in (("corner", corner.quantile), ("dynesty", quantile)):
    x = np.arange(4.0)
    for last in (1.0, 97.0):
        weights = np.array([1.0, 1.0, 1.0, last])
        weights /= weights.sum()
        up, down = (float(np.ravel(function(sign * x, [0.5], weights=weights))[0]) for sign in (1, -1))
        found[name, last] = up, down
        exact = np.quantile(x, 0.5, weights=weights, method="inverted_cdf")
        print(f"{name}, last weight {weights[-1]:.2f}: median {up:.2f} (NumPy {exact:g}), of the negatives {down:.2f}")
held = all(abs(found[name, 97.0][0] - 1.5) < 0.01 and abs(found[name, 97.0][1] + 2.5) < 0.02 for name in ("corner", "dynesty"))
raise SystemExit(not held)
PY
