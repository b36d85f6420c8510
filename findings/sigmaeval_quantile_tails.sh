#!/usr/bin/env bash
# sigmaeval 0.1.0: `crps_quantile`, the CRPS of a forecast given by its quantiles, 0.01 to 0.99 here.
# Guess: about that of the forecast, `crps_gaussian`: an observation ten times as far has some ten times the score; a forecast that puts all
# quantiles on one value has the distance to it.
# Seen: 1.79 for an observation at 3, 10 or 100: the integral ends at the outermost quantiles. All quantiles on one value score 0 wherever the
# observation is, so the narrowest forecast is the best.
. "$(dirname "$0")/_packages.sh" sigmaeval==0.1.0 numpy==2.1.3 scipy==1.16.3
"$python" - 2>/dev/null <<'PY'
import numpy as np
from scipy.stats import norm
from sigmaeval.sigmaeval import crps_gaussian, crps_quantile

levels = np.arange(1, 100) / 100
normal, point, far = norm.ppf(levels)[:, None], np.zeros((99, 1)), {}
for at in (0.0, 3.0, 10.0, 100.0):
    y = np.array([at])
    far[at] = [float(crps_quantile(forecast, levels, y, normalization=False)) for forecast in (normal, point)]
    pinball = 2 * np.maximum(levels * (y - normal[:, 0]), (levels - 1) * (y - normal[:, 0])).mean()
    exact = float(crps_gaussian(y, np.zeros(1), np.ones(1)))
    print(f"observation {at:g}: normal quantiles {far[at][0]:.3f} (exact {exact:.3f}, pinball {pinball:.3f}), point {far[at][1]:.3f} ({at:g})")
random = np.random.default_rng(0)
y, scores = random.normal(size=2000), {}
for width in (1.0, 0.3, 0.1):
    scores[width] = float(crps_quantile(width * np.tile(normal, 2000), levels, y, normalization=False))
    print(f"mean of 2,000 normal observations, forecast of standard deviation {width}: {scores[width]:.3f}")
held = abs(far[0.0][0] - 0.234) < 0.01 and abs(far[100.0][0] - far[3.0][0]) < 1e-6 and far[100.0][1] < 1e-6
raise SystemExit(not (held and scores[0.1] < scores[0.3] < scores[1.0]))
PY
