#!/usr/bin/env bash
# ArviZ-stats 0.8.0: `array_stats.psislw` refuses equal weights.
# Guess: weights of draws from the target itself, the best case there is, come back as they are with a small k. Seen: ValueError ("All tail
# values are the same"), as for weights whose largest fifth is equal.
. "$(dirname "$0")/_packages.sh" arviz-stats==0.8.0
"$python" - <<'PY'
import numpy as np
from arviz_stats.base import array_stats

try:
    print("k", array_stats.psislw(np.zeros(1000))[1])
except ValueError as error:
    print(f"ValueError: {error}")
else:
    raise SystemExit(1)
PY
