#!/usr/bin/env bash
# PINTS 0.6.1: `effective_sample_size` of independent draws.
# Guess: about their number, 10,000, as in ArviZ, NumPyro, coda.
# Seen: at most a third of it: the sum of autocorrelations, which is doubled, starts at lag 0, where it is 1: n / (1 + 2 (1 + ...)).
# The documentation gives no formula.
. "$(dirname "$0")/_packages.sh" pints==0.6.1 numpy==2.4.6 scipy==1.17.1
"$python" - <<'PY'
import numpy as np, pints

independent = np.random.default_rng(0).normal(size=(10_000, 5))
ess = np.array(pints.effective_sample_size(independent))
print("of 10,000 independent draws:", ess.round())
raise SystemExit(not (2500 < ess.min() and ess.max() < 3334))
PY
