#!/usr/bin/env bash
# ArviZ-stats 0.8.0: `array_stats.psislw` on plain arrays takes minus the log weights.
# Guess: log importance ratios, as ArviZ 0.x took and as the result, "log weights", suggests. Seen: of ratios with a Pareto tail of shape
# 0.9 it gives k = -0.97, "good", since it fits the other tail; of their negatives 0.90.
. "$(dirname "$0")/_packages.sh" arviz-stats==0.8.0
"$python" - <<'PY'
import numpy as np
from arviz_stats.base import array_stats

log_ratios = 0.9 * np.random.default_rng(0).exponential(size=20_000)
k, of_negatives = (float(array_stats.psislw(x)[1]) for x in (log_ratios, -log_ratios))
print(f"k of the log ratios {k:.2f}, of their negatives {of_negatives:.2f} (true: 0.9)")
raise SystemExit(not (k < 0 and abs(of_negatives - 0.9) < 0.1))
PY
