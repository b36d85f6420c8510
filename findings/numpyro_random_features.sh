#!/usr/bin/env bash
# NumPyro 0.22.0: `RandomFeatureKernel` of its Stein variational inference, with 2,000 features of 2,000 particles.
# Guess: an estimate of the kernel of `RBFKernel`, within 0.05: the documentation writes a mean over features.
# Seen: a sum, not a mean: k(x, x) is above 2,000 instead of 1, and grows with the number of particles.
. "$(dirname "$0")/_packages.sh" numpyro==0.22.0 jax==0.10.2 numpy==2.4.6
"$python" - <<'PY'
import jax, numpy as np
from numpyro.contrib.einstein import RandomFeatureKernel, RBFKernel

key, diagonals = jax.random.key(0), {}
for number in (500, 2000):
    particles = jax.random.normal(key, (number, 2))
    for kernel in (RandomFeatureKernel(), RBFKernel()):
        kernel.init(jax.random.key(1), particles.shape)
        k = kernel.compute(key, particles, None, None)
        diagonals[type(kernel).__name__, number] = float(np.mean([k(x, x) for x in particles[:20]]))
print({name: round(value, 1) for name, value in diagonals.items()})
ratio = diagonals["RandomFeatureKernel", 2000] / diagonals["RandomFeatureKernel", 500]
raise SystemExit(not (abs(diagonals["RBFKernel", 2000] - 1) < 1e-5 and diagonals["RandomFeatureKernel", 500] > 250 and ratio > 3))
PY
