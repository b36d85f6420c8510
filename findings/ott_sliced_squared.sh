#!/usr/bin/env bash
# OTT-JAX 0.6.0, POT 0.9.7.post1: the sliced Wasserstein distance of two samples of which one is the other moved by (3, 0).
# Guess: both give the root of the mean squared distance over directions, 3 / sqrt(2) = 2.12.
# Seen: POT does; OTT's `sliced_wasserstein` gives its square, some 4.5, in squared units.
. "$(dirname "$0")/_packages.sh" ott-jax==0.6.0 jax==0.10.2 pot==0.9.7.post1 numpy==2.4.6
"$python" - <<'PY'
import jax.numpy as jnp, numpy as np, ot
from ott.tools.sliced import sliced_wasserstein

a = np.random.default_rng(0).normal(size=(200, 2))
b = a + [3.0, 0.0]
pot = ot.sliced_wasserstein_distance(a, b, n_projections=2000, seed=0)
ott = float(sliced_wasserstein(jnp.array(a), jnp.array(b), n_proj=2000)[0])
print(f"POT {pot:.3f}, OTT {ott:.3f}, its root {ott**0.5:.3f}")
raise SystemExit(not (abs(pot - 2.12) < 0.1 and abs(ott - 4.5) < 0.4))
PY
