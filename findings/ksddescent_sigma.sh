#!/usr/bin/env bash
# ksddescent 0.3: the bandwidth `sigma` of its Gaussian Stein kernel.
# Guess: as everywhere, exp(-|x - y|^2 / (2 sigma^2)): at distance 1 with sigma 2, 0.882.
# Seen: exp(-|x - y|^2 / (2 sigma)), 0.779: `sigma` is the square of the width, so a median distance must be squared first.
. "$(dirname "$0")/_packages.sh" ksddescent==0.3 torch==2.13.0 numpy==2.4.6
"$python" - <<'PY'
import math, torch
from ksddescent.kernels import gaussian_stein_kernel

x, y = torch.zeros(1, 1), torch.ones(1, 1)
value = float(gaussian_stein_kernel(x, y, -x, -y, 2.0, return_kernel=True)[1])
print(f"kernel {value:.3f}; with sigma a width {math.exp(-1 / 8):.3f}, with sigma its square {math.exp(-1 / 4):.3f}")
raise SystemExit(abs(value - math.exp(-1 / 4)) > 1e-6)
PY
