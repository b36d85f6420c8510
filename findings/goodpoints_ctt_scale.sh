#!/usr/bin/env bash
# goodpoints 0.6.3: the test statistic of Compress Then Test, `ctt(X, Y, g).statistic_values`, for 4,096 and 4,096 draws.
# Guess: an estimate of the squared MMD, 0.137, near those of `rff` and `lrctt` of the same module, and better with a larger g.
# Seen: 0.0006, 0.002, 0.009, 0.034 for g = 0, 1, 2, 3: sums over coresets are divided by the sizes of the bins they were drawn from. The
# test is right, as its permutations are scaled alike, but values of two g, two sizes or two tests cannot be compared. The documentation
# says "test statistic" and no more.
. "$(dirname "$0")/_packages.sh" goodpoints==0.6.3 numpy==2.4.6
"$python" - <<'PY'
import numpy as np
from goodpoints.ctt import ctt, rff

rng = np.random.default_rng(0)
x, y = rng.normal(size=(4096, 2)), rng.normal(size=(4096, 2)) + 1
k = lambda a, b: np.mean([np.exp(-((row - b) ** 2).sum(-1)).mean() for row in a])
mmd2 = k(x, x) + k(y, y) - 2 * k(x, y)
other = float(rff(x, y, r=100, null_seed=0, statistic_seed=1).statistic_values)
seen = [float(ctt(x, y, g, null_seed=0, statistic_seed=1).statistic_values) for g in range(4)]
print(f"squared MMD {mmd2:.4f}, rff {other:.4f}, ctt for g = 0 to 3:", [round(value, 5) for value in seen])
ratios = [mmd2 / value for value in seen]
raise SystemExit(not (abs(other / mmd2 - 1) < 0.2 and ratios[0] > 150 and all(3 < a / b < 5 for a, b in zip(ratios, ratios[1:], strict=False))))
PY
