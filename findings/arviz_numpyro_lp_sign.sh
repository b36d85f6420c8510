#!/usr/bin/env bash
# ArviZ-base 0.8.2, NumPyro 0.22.0: `sample_stats["lp"]` of a converted run.
# Guess: the log density, as the name says and as in runs of emcee, which `from_emcee` stores under the same name.
# Seen: NumPyro's potential energy as it is, minus the log density: the draw of largest `lp` is the one farthest out in the tail.
. "$(dirname "$0")/_packages.sh" arviz-base==0.8.2 numpyro==0.22.0 jax==0.10.2 numpy==2.4.6 emcee==3.1.6
"$python" - <<'PY'
import emcee, jax, numpy as np, numpyro, numpyro.distributions as dist
from arviz_base import from_emcee, from_numpyro
from numpyro.infer import MCMC, NUTS

run = MCMC(NUTS(lambda: numpyro.sample("x", dist.Normal(0, 1))), num_warmup=200, num_samples=300, progress_bar=False)
run.run(jax.random.PRNGKey(0), extra_fields=("potential_energy",))
ensemble = emcee.EnsembleSampler(10, 1, lambda x: -0.5 * x @ x)
ensemble.run_mcmc(np.random.default_rng(0).normal(size=(10, 1)), 30)
slopes = {}
for name, data in (("NumPyro", from_numpyro(run)), ("emcee", from_emcee(ensemble, var_names=["x"]))):
    log_density = -0.5 * data.posterior["x"].values.ravel() ** 2
    slopes[name] = float(np.polyfit(log_density, data.sample_stats["lp"].values.ravel(), 1)[0])
print({name: round(slope, 3) for name, slope in slopes.items()}, "(slope of lp against the log density)")
raise SystemExit(not (abs(slopes["NumPyro"] + 1) < 1e-3 and abs(slopes["emcee"] - 1) < 1e-3))
PY
