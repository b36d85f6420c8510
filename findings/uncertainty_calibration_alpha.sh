#!/usr/bin/env bash
# uncertainty-calibration 0.1.4: `get_calibration_error_uncertainties(alpha=0.1)`, "1-alpha confidence intervals" by the bootstrap.
# Guess: 0.1 gives 90% intervals and 0.5 shorter ones of 50%, about 0.4 times as long.
# Seen: both are about as long: alpha is in per cent, so that 0.1 and 0.5 are the whole range of 100 resamples. 10 is 90%, and 50 is 50%.
. "$(dirname "$0")/_packages.sh" uncertainty-calibration==0.1.4 numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1
"$python" - 2>/dev/null <<'PY'
import numpy as np
from calibration import get_calibration_error_uncertainties

np.random.seed(0)
length = {alpha: [] for alpha in (0.1, 0.5, 10, 50)}
for _ in range(10):
    p = np.random.uniform(size=500).round(1)
    y = (np.random.uniform(size=500) < p**2).astype(int)
    for alpha in length:
        low, _, high = get_calibration_error_uncertainties(p, y, alpha=alpha)
        length[alpha].append(high - low)
length = {alpha: float(np.mean(each)) for alpha, each in length.items()}
for alpha, mean in length.items():
    print(f"alpha = {alpha}: mean length {mean:.3f}")
raise SystemExit(not (length[0.5] > 0.85 * length[0.1] and length[0.5] > 1.3 * length[10] > 2.6 * length[50]))
PY
