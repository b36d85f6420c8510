#!/usr/bin/env bash
# tropygal 0.1.4: `cross_entropy(x, y, k=)`, by the distances from the points of one sample to their neighbours in another.
# Guess: that of two samples of one distribution is its entropy, up to noise, for any k; their difference estimates a divergence of 0.
# Seen: 1/k more: 1 nat at the default k=1. The neighbour after the k-th is taken, as in `entropy`, where the nearest is the point itself; but no
# point of the first sample is in the second.
. "$(dirname "$0")/_packages.sh" tropygal==0.1.4 numpy==2.1.3 scipy==1.16.3
"$python" - 2>/dev/null <<'PY'
import numpy as np
from scipy.special import digamma
from scipy.spatial.distance import cdist
from tropygal import cross_entropy, entropy

random = np.random.default_rng(0)
x, y = random.normal(size=(2, 3000, 2))
true = 1 + np.log(2 * np.pi)
sorted_distances = np.sort(cdist(x, y), axis=1)
wrong = []
for k in (1, 2, 5):
    seen, alone = cross_entropy(x, y, k=k, workers=1), entropy(x, k=k, workers=1)
    formula = np.log(len(y)) - digamma(k) + np.log(np.pi) + 2 * np.log(sorted_distances[:, k - 1]).mean()
    print(f"k = {k}: cross entropy {seen:.2f}, with the k-th neighbour {formula:.2f}, entropy {alone:.2f} ({true:.2f})")
    wrong.append(abs(alone - true) < 0.1 and abs(formula - true) < 0.1 and abs(seen - formula - 1 / k) < 0.05)
raise SystemExit(not all(wrong))
PY
