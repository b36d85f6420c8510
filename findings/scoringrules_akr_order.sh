#!/usr/bin/env bash
# scoringrules 0.10.0: `crps_ensemble(estimator="akr")` of 1,000 normal draws, in two orders, with and without Numba.
# Guess: an estimator of the CRPS does not depend on the order of the members; two backends agree.
# Seen: each member is compared with its neighbour in the array alone: sorted draws lose the spread term, and the score triples. The Numba
# backend, which is the default where Numba is installed, gives the first member another neighbour than NumPy's. The page of the function
# only names the estimator.
. "$(dirname "$0")/_packages.sh" scoringrules==0.10.0 numpy==2.4.6 scipy==1.17.1 numba==0.68.1
"$python" - <<'PY'
import numpy as np, scoringrules as sr

draws = np.random.default_rng(0).normal(size=1000)
score = lambda x, backend="numpy", estimator="akr": float(sr.crps_ensemble(0.0, x, estimator=estimator, backend=backend))
drawn, ordered, right = score(draws), score(np.sort(draws)), score(draws, estimator="nrg")
few = [score(np.array([0.0, 1.0, 3.0]), backend) for backend in ("numpy", "numba")]
print(f"akr as drawn {drawn:.3f}, sorted {ordered:.3f}, nrg {right:.3f}; akr of 0, 1, 3 in NumPy {few[0]:.3f}, in Numba {few[1]:.3f}")
raise SystemExit(not (abs(drawn - right) < 0.05 and ordered > 3 * right and abs(few[0] - few[1]) > 0.1))
PY
