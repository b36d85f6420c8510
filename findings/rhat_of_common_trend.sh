#!/usr/bin/env bash
# BlackJAX 1.7.1, TensorFlow Probability 0.26.0.dev20261027 (JAX), NumPyro 0.22.0: R-hat of four chains that all drift by thirty
# of their standard deviations, side by side.
# Guess: far above 1, since chains are split by default everywhere today (Vehtari et al. 2021).
# Seen: 1.00 in BlackJAX and by TensorFlow Probability's default; NumPyro's `split_gelman_rubin`: 2.06. With `split_chains=True`
# TensorFlow Probability says 4.66: it is no root, so that a limit of 1.01 means another thing there.
. "$(dirname "$0")/_packages.sh" blackjax==1.7.1 jax==0.10.2 numpy==2.4.6 numpyro==0.22.0 tfp-nightly==0.26.0.dev20261027
"$python" - <<'PY'
import blackjax, jax.numpy as jnp, numpy as np
from numpyro.diagnostics import split_gelman_rubin
from tensorflow_probability.substrates.jax.mcmc import potential_scale_reduction

x = 0.1 * np.random.default_rng(0).normal(size=(4, 1000)) + np.linspace(0, 3, 1000)
plain = float(blackjax.diagnostics.potential_scale_reduction(jnp.array(x)))
default, split = (float(potential_scale_reduction(jnp.array(x.T), split_chains=s)) for s in (False, True))
right = float(split_gelman_rubin(x))
print(f"BlackJAX {plain:.2f}, TFP {default:.2f}, TFP split {split:.2f}, NumPyro split {right:.2f}")
raise SystemExit(not (max(plain, default) < 1.01 and right > 2 and split > right**2))
PY
