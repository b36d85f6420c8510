#!/usr/bin/env bash
# NumPyro 0.22.0 with JAX 0.10.2: NumPy data of a model that was sampled in single precision keep that type in functions that are
# written later, also after `jax_enable_x64`. Guess: a new function is traced anew, in double precision. Seen: it does not compile
# ("Cannot lower jaxpr with verifier errors") until `jax.clear_caches()`.
. "$(dirname "$0")/_packages.sh" jax==0.10.2 numpyro==0.22.0
"$python" - <<'PY'
import jax, numpy as np, numpyro, numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

y, sd = np.array([2.1, -0.3, 1.7]), np.array([1.0, 2.0, 0.5])


def model(y=None):
    numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Normal(0, 3)), sd), obs=y)


MCMC(NUTS(model), num_warmup=5, num_samples=5, progress_bar=False).run(jax.random.PRNGKey(0), y=y)
jax.config.update("jax_enable_x64", True)
density = lambda m: (-0.5 * ((y - m) / sd) ** 2).sum()
try:
    print("before:", jax.jit(density)(1.0))
    failed = False
except ValueError as error:
    print("before:", str(error).splitlines()[0])
    failed = "verifier errors" in str(error)
jax.clear_caches()
value = float(jax.jit(density)(1.0))
print("after jax.clear_caches():", value)
raise SystemExit(not (failed and abs(value - density(1.0)) < 1e-12))
PY
