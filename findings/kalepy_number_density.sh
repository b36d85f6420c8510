#!/usr/bin/env bash
# kalepy 1.4.3: `KDE(draws).density(points)` of 2,000 standard normal draws at 0.
# Guess: a probability density, about 0.4, as those of other kernel estimators.
# Seen: about 760: by default it is a density of the number of draws (or of the sum of weights), 2,000 times the other.
. "$(dirname "$0")/_packages.sh" kalepy==1.4.3 numpy==1.26.4
"$python" - <<'PY'
import kalepy, numpy as np

estimate = kalepy.KDE(np.random.default_rng(0).normal(size=2000))
default = estimate.density(np.zeros(1))[1].item()
probability = estimate.density(np.zeros(1), probability=True)[1].item()
print(f"default {default:.1f}, probability=True {probability:.3f}")
raise SystemExit(not (abs(default / probability - 2000) < 1 and abs(probability - 0.4) < 0.05))
PY
