#!/usr/bin/env bash
# scoringrules 0.10.0: `gksuv_ensemble(estimator="fair", ens_w=)`, the Gaussian kernel score of an ensemble with weights.
# Guess: equal weights give the score without weights, as with the other estimators and for `crps_ensemble`.
# Seen: for six members the mean score rises from 0.214 to 0.314, above that of "nrg": pairs of a member with itself stay in the sum that is
# divided by the weight of the other pairs. With the Numba backend, the default where Numba is installed, equal weights change nothing.
. "$(dirname "$0")/_packages.sh" scoringrules==0.10.0 numpy==2.4.6 scipy==1.17.1 numba==0.68.1
"$python" - <<'PY'
import numpy as np, scoringrules as sr

random = np.random.default_rng(0)
observed, members = random.normal(size=200), random.normal(size=(200, 6))
score = lambda name, backend, **options: float(getattr(sr, name)(observed, members, backend=backend, **options).mean())
found = {}
for name, estimator in (("gksuv_ensemble", "fair"), ("gksuv_ensemble", "nrg"), ("crps_ensemble", "fair")):
    for backend in ("numpy", "numba"):
        pair = [score(name, backend, estimator=estimator, **w) for w in ({}, {"ens_w": np.ones(members.shape)})]
        found[name, estimator, backend] = pair
        print(f"{name} {estimator} {backend}: without weights {pair[0]:.4f}, with equal ones {pair[1]:.4f}")
wrong = found.pop(("gksuv_ensemble", "fair", "numpy"))
raise SystemExit(not (abs(wrong[0] - 0.214) < 0.01 and abs(wrong[1] - 0.314) < 0.01 and all(abs(a - b) < 1e-6 for a, b in found.values())))
PY
