#!/usr/bin/env bash
# densratio 0.4.0: `alpha_PE`, the Pearson divergence of two samples by RuLSIF, where their sizes differ.
# Guess: about 0 for two samples of one distribution, whatever their sizes.
# Seen: -1.9 for 200 against 1,000 draws, 0.4 for 1,000 against 200, as if they differed: the sum over the second sample is divided by
# the size of the first.
. "$(dirname "$0")/_packages.sh" densratio==0.4.0 numpy==2.1.3
"$python" - 2>/dev/null <<'PY'
import numpy as np
from densratio import densratio

np.random.seed(0)
found = {}
for sizes in ((500, 500), (200, 1000), (1000, 200)):
    x, y = (np.random.normal(size=(size, 1)) for size in sizes)
    found[sizes] = float(densratio(x, y, alpha=0, sigma_range=[1.0], lambda_range=[0.1], verbose=False).alpha_PE)
    print(f"sizes {sizes}: {found[sizes]:.3f}")
raise SystemExit(not (abs(found[500, 500]) < 0.1 and found[200, 1000] < -1 and found[1000, 200] > 0.2))
PY
