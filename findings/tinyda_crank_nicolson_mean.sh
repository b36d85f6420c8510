#!/usr/bin/env bash
# tinyDA 0.9.21: `CrankNicolson` with the prior `multivariate_normal([5, 5], I)`, the type it asks for, where data say little or say 5 too.
# Guess: the posterior of `GaussianRandomWalk`, around 5 in both.
# Seen: around 0 and around 2.5: proposals shrink towards 0, not towards the mean of the prior, and are accepted by the likelihood alone, as if
# the prior were centred at 0.
. "$(dirname "$0")/_packages.sh" tinyDA==0.9.21 ray==2.60.0 numpy==1.26.4 scipy==1.17.1 arviz==0.18.0 matplotlib==3.10.9
"$python" - 2>/dev/null <<'PY'
import contextlib
import io
import numpy as np
import tinyDA
from scipy.stats import multivariate_normal

np.random.seed(0)
prior, found = multivariate_normal(np.full(2, 5.0), np.eye(2)), {}
for deviation in (100.0, 1.0):
    likelihood = tinyDA.GaussianLogLike(np.full(2, 5.0), np.eye(2) * deviation**2)
    posterior = tinyDA.Posterior(prior, likelihood, lambda x: x)
    for proposal in (tinyDA.CrankNicolson(scaling=0.5), tinyDA.GaussianRandomWalk(2 * np.eye(2))):
        name = type(proposal).__name__
        with contextlib.redirect_stdout(io.StringIO()):
            chain = tinyDA.sample(posterior, proposal, iterations=5000, n_chains=1, force_sequential=True)
        found[deviation, name] = float(tinyDA.get_samples(chain, burnin=500)["chain_0"].mean())
        print(f"data of standard deviation {deviation:g}, {name}: mean {found[deviation, name]:.2f} (5)")
right = all(abs(value - 5) < 0.3 for (_, name), value in found.items() if name == "GaussianRandomWalk")
raise SystemExit(not (right and abs(found[100.0, "CrankNicolson"]) < 0.3 and abs(found[1.0, "CrankNicolson"] - 2.5) < 0.3))
PY
