#!/usr/bin/env bash
# netcal 1.4.0: `PinballLoss` (`QuantileLoss`) of a normal forecast at the levels 0.1, 0.5, 0.9.
# Guess: the formula of its documentation, with the quantile of that level: 0 at level 0.5 for an observation at the median.
# Seen: 0.34 in place of 0: the level is the mass of a central interval, and the bound nearer to the observation stands for the quantile. For
# calibrated forecasts the mean loss at 0.5 is 0.24 in place of 0.40, and levels 0.1 and 0.9 differ.
. "$(dirname "$0")/_packages.sh" netcal==1.4.0 torch==2.13.0 numpy==2.4.6 scipy==1.17.1
"$python" - 2>/dev/null <<'PY'
import numpy as np
from netcal.metrics.regression import PinballLoss
from scipy.stats import norm

y = np.random.default_rng(0).normal(size=20_000)
at_median = PinballLoss().measure((np.zeros(1), np.ones(1)), np.zeros(1), q=np.array([0.5]))
print(f"level 0.5, observation at the median: {at_median:.3f} (0)")
seen, formula = {}, {}
for level in (0.1, 0.5, 0.9):
    miss = y - norm.ppf(level)
    formula[level] = float(np.maximum(level * miss, (level - 1) * miss).mean())
    seen[level] = float(PinballLoss().measure((0 * y, 0 * y + 1), y, q=np.array([level])))
    print(f"level {level}, mean of 20,000: {seen[level]:.3f} ({formula[level]:.3f})")
raise SystemExit(not (abs(at_median - 0.337) < 0.01 and formula[0.5] > 1.5 * seen[0.5] and seen[0.9] > 1.5 * seen[0.1]))
PY
