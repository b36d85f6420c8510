#!/usr/bin/env bash
# Uncertainty Toolbox 0.1.1: `scaled=False` of its scores.
# Guess: a sum over the held-out data instead of their mean, for every score, as the documentation of each says: twice the data, twice the score.
# Seen: so do `nll_gaussian` and `crps_gaussian`; `check_score` and `interval_score` stay as they are: they average over the data in any case, and
# `scaled` divides by the number of quantile levels, 99.
. "$(dirname "$0")/_packages.sh" uncertainty-toolbox==0.1.1 numpy==2.4.6 scipy==1.17.1
"$python" - <<'PY'
import numpy as np
from uncertainty_toolbox import metrics_scoring_rule as scores

y = np.random.default_rng(0).normal(size=500)
twice = {}
for name in ("nll_gaussian", "crps_gaussian", "check_score", "interval_score"):
    once, both = (getattr(scores, name)(np.zeros_like(d), np.ones_like(d), d, scaled=False) for d in (y, np.tile(y, 2)))
    twice[name] = float(both / once)
ratio = scores.check_score(0 * y, 0 * y + 1, y, scaled=False) / scores.check_score(0 * y, 0 * y + 1, y)
print({name: round(factor, 3) for name, factor in twice.items()}, f"check_score: {ratio:.1f} times the scaled one, of 500 data")
raise SystemExit(not (np.allclose(list(twice.values()), [2, 2, 1, 1]) and abs(ratio - 99) < 1e-6))
PY
