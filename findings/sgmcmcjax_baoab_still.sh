#!/usr/bin/env bash
# SGMCMCJax 0.2.13: `build_baoab_sampler`, the BAOAB splitting of underdamped Langevin dynamics, with JAX 0.4.30.
# Guess: on a normal log density 40,000 samples have its variance, as those of `build_sgld_sampler`.
# Seen: no position ever moves: of the two halves of its step the second is called twice, which changes the velocity alone. The same
# of `build_badodab_sampler`. No error, no warning.
. "$(dirname "$0")/_packages.sh" sgmcmcjax==0.2.13 jax==0.4.30 jaxlib==0.4.30 numpy==1.26.4 scipy==1.13.1
"$python" - 2>/dev/null <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
from sgmcmcjax import samplers

data = (jnp.zeros((4,)),)
density = (lambda theta, x: 0.0 * x.sum()), (lambda theta: -0.5 * jnp.sum(theta**2)), data, 4
made = {
    "sgld": samplers.build_sgld_sampler(0.1, *density),
    "sgnht": samplers.build_sgnht_sampler(0.01, *density, a=0.1),
    "baoab": samplers.build_baoab_sampler(0.1, *density, gamma=1.0),
    "badodab": samplers.build_badodab_sampler(0.1, *density, a=1.0),
}
found = {name: np.array(run(jax.random.PRNGKey(0), 40_000, jnp.ones(3))) for name, run in made.items()}
print({name: (float(x[2_000:].var()), float(np.ptp(x))) for name, x in found.items()})
moves = all(0.7 < found[name][2_000:].var() < 1.4 for name in ("sgld", "sgnht"))
raise SystemExit(not (moves and all(np.ptp(found[name]) == 0 for name in ("baoab", "badodab"))))
PY
