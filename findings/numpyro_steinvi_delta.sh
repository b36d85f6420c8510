#!/usr/bin/env bash
# NumPyro 0.22.0: `SteinVI` with an `AutoDelta` guide and one draw, of a standard normal target.
# Guess: it is `SVGD`, which is the same class with that guide: more particles, a spread nearer to 1.
# Seen: the attractive force is summed over particles, the repulsive one averaged: the spread shrinks as 1 / sqrt(particles), 0.25 with 10 and
# 0.13 with 50, where `SVGD` has 0.78 and 0.93. `SVGD` divides by `loss_temperature=1/particles`; the documentation of `SteinVI` calls 1,
# its default, a factor of the force and says nothing of their number.
. "$(dirname "$0")/_packages.sh" numpyro==0.22.0 jax==0.10.2 numpy==2.4.6
"$python" - <<'PY'
import numpyro, numpyro.distributions as dist, jax
from numpyro.contrib.einstein import SVGD, RBFKernel, SteinVI
from numpyro.infer.autoguide import AutoDelta

model = lambda: numpyro.sample("x", dist.Normal(0, 1).expand([2]).to_event(1))
spreads = {}
for particles in (10, 50):
    common = {"optim": numpyro.optim.Adagrad(0.5), "kernel_fn": RBFKernel(), "num_stein_particles": particles}
    for fit in (SVGD(model, **common), SteinVI(model, AutoDelta(model), num_elbo_particles=1, **common)):
        params = fit.run(jax.random.key(0), 2000, progress_bar=False).params
        spreads[type(fit).__name__, particles] = float(params["x_auto_loc"].std())
print({key: round(spread, 3) for key, spread in spreads.items()})
plain, summed = ([spreads[name, particles] for particles in (10, 50)] for name in ("SVGD", "SteinVI"))
raise SystemExit(not (min(plain) > 0.7 and plain[1] > plain[0] and summed[0] < 0.35 and summed[1] < 0.2))
PY
