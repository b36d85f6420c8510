#!/usr/bin/env bash
# tinygp 0.3.1, scikit-learn 1.9.1: the Matérn kernel of points in two dimensions, (0, 0) against (1, 1) and (sqrt(2), 0).
# Guess: the same value for both, since the kernel is isotropic: 0.30 for `Matern32`, as scikit-learn says.
# Seen: 0.14 and 0.30: tinygp's Matérn and rational quadratic kernels measure the Manhattan distance by default, `ExpSquared` the Euclidean.
. "$(dirname "$0")/_packages.sh" tinygp==0.3.1 jax==0.10.2 numpy==2.4.6 scikit-learn==1.9.1
"$python" - <<'PY'
import numpy as np
from sklearn.gaussian_process.kernels import Matern
from tinygp import kernels

origin, diagonal, axis = np.zeros((1, 2)), np.ones((1, 2)), np.array([[2**0.5, 0.0]])
pairs = {}
named = (Matern(nu=1.5), kernels.Matern32(), kernels.RationalQuadratic(alpha=1.0), kernels.ExpSquared())
for name, kernel in zip(("scikit-learn", "Matern32", "RationalQuadratic", "ExpSquared"), named):
    pairs[name] = [round(float(kernel(point, origin)[0, 0]), 3) for point in (diagonal, axis)]
print(pairs)
same = {name: pair[0] == pair[1] for name, pair in pairs.items()}
raise SystemExit(same != {"scikit-learn": True, "Matern32": False, "RationalQuadratic": False, "ExpSquared": True})
PY
