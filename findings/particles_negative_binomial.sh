#!/usr/bin/env bash
# particles 0.4: `distributions.NegativeBinomial(n, p)`, of which `rvs` draws.
# Guess: `logpdf` is the log probability of those draws.
# Seen: `n` and `p` change places in `logpdf` and `ppf`: NaN for n = 4, p = 0.4; for n = 1, p = 0.4 probability 1 at 0, where 40% of the
# draws are, and 0 at all others.
. "$(dirname "$0")/_packages.sh" particles==0.4 numpy==1.26.4 scipy==1.13.1
"$python" - 2>/dev/null <<'PY'
import numpy as np
from particles.distributions import NegativeBinomial
from scipy.stats import nbinom

np.random.seed(0)
found, right = {}, []
for n in (1, 4):
    law = NegativeBinomial(n, 0.4)
    draws, values = law.rvs(20_000), np.arange(4)
    shares = [float((draws == k).mean()) for k in values]
    found[n] = np.exp(law.logpdf(values))
    right.append(np.allclose(shares, nbinom.pmf(values, n, 0.4), atol=0.02))
    print(f"n = {n}: shares of draws {np.round(shares, 3)}, by logpdf {found[n]}")
raise SystemExit(not (all(right) and found[1].tolist() == [1, 0, 0, 0] and np.isnan(found[4]).all()))
PY
