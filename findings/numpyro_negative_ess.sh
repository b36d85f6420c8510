#!/usr/bin/env bash
# NumPyro 0.22.0 and Pyro 1.9.2: `effective_sample_size` of antithetic chains is negative.
# Guess: above the number of draws, which four AR(1) chains of coefficient -0.9 with 4,000 draws are worth 19 times. Seen: about -80,000, in
# NumPyro and in Pyro; BlackJAX 1.7.1 and ArviZ-stats 0.8.0 give 14,408 (n log10 n, their bound).
. "$(dirname "$0")/_packages.sh" numpyro==0.22.0 pyro-ppl==1.9.2 blackjax==1.7.1 jax==0.10.2 arviz-stats==0.8.0 torch==2.7.1
"$python" - <<'PY'
import blackjax, jax.numpy as jnp, numpy as np, pyro.ops.stats, torch
from arviz_stats.base import array_stats
from numpyro.diagnostics import effective_sample_size

x, rng = np.zeros((4, 1000)), np.random.default_rng(1)
for t in range(1, 1000):
    x[:, t] = -0.9 * x[:, t - 1] + rng.normal(size=4)
sizes = {
    "NumPyro": float(effective_sample_size(x)),
    "Pyro": float(pyro.ops.stats.effective_sample_size(torch.tensor(x))),
    "BlackJAX": float(blackjax.diagnostics.effective_sample_size(jnp.array(x))),
    "ArviZ": float(array_stats.ess(x, chain_axis=0, draw_axis=1, method="mean")),
}
print({name: round(size) for name, size in sizes.items()})
raise SystemExit(not (sizes["NumPyro"] < 0 and sizes["Pyro"] < 0 and sizes["BlackJAX"] > 4000 and sizes["ArviZ"] > 4000))
PY
