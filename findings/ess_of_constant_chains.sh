#!/usr/bin/env bash
# ArviZ-stats 0.8.0, BlackJAX 1.7.1, NumPyro 0.22.0: the effective sample size of chains that never moved.
# Guess: all say the same, NaN or 0. Seen: ArviZ says that all 400 draws are effective (its R-hat is NaN), BlackJAX 0, NumPyro NaN.
. "$(dirname "$0")/_packages.sh" numpyro==0.22.0 blackjax==1.7.1 jax==0.10.2 arviz-stats==0.8.0
"$python" - <<'PY'
import blackjax, jax.numpy as jnp, math, numpy as np
from arviz_stats.base import array_stats
from numpyro.diagnostics import effective_sample_size

x = np.ones((4, 100))
arviz, blackjax_, numpyro_ = (
    float(array_stats.ess(x, chain_axis=0, draw_axis=1, method="mean")),
    float(blackjax.diagnostics.effective_sample_size(jnp.array(x))),
    float(effective_sample_size(x)),
)
print(f"ArviZ {arviz:g} of 400, BlackJAX {blackjax_:g}, NumPyro {numpyro_:g}")
raise SystemExit(not (arviz == 400 and blackjax_ == 0 and math.isnan(numpyro_)))
PY
