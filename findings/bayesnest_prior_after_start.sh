#!/usr/bin/env bash
# bayesnest 1.0.0: `NestedSampler` with a standard normal prior and one observation at 3 of standard deviation 1.
# Guess: with `sampler="mcmc"` as with `"uniform"` the posterior mean of 1.5 and the log evidence of -3.52.
# Seen: 2.8 and -2.8: only the first live points come from the prior. Later ones are uniform where the likelihood is high enough, so that
# the likelihood alone is sampled. `"diffusive"` and `"slice"` do so too.
. "$(dirname "$0")/_packages.sh" bayesnest==1.0.0 numpy==2.4.6 scipy==1.17.1 matplotlib==3.11.2 corner==2.3.0 scikit-learn==1.9.1
"$python" - 2>/dev/null <<'PY'
import contextlib
import io
import numpy as np
from bayesnest.priors import gaussian
from bayesnest.sampler import NestedSampler

found = {}
for sampler in ("uniform", "mcmc", "diffusive"):
    runs = []
    for seed in range(3):
        np.random.seed(seed)
        run = NestedSampler(
            lambda x: -0.5 * (3 - x[0]) ** 2 - 0.5 * np.log(2 * np.pi), lambda u: np.array([gaussian(u[0], 0, 1)]), 1,
            live_points=50, max_iterations=450, tolerance=0.01, sampler=sampler, step_scale=0.5,
        )
        with contextlib.redirect_stdout(io.StringIO()):
            run.run()
        samples, weights = run.get_posterior_samples()
        runs.append((float(weights @ samples[:, 0]), run.log_evidence))
    found[sampler] = np.mean(runs, axis=0)
    print(f"{sampler}: mean {found[sampler][0]:.2f} (1.50), log evidence {found[sampler][1]:.2f} ({-2.25 - 0.5 * np.log(4 * np.pi):.2f})")
near = abs(found["uniform"] - [1.5, -3.52]).max() < 0.4
raise SystemExit(not (near and all(found[s][0] > 2.3 and found[s][1] > -3 for s in ("mcmc", "diffusive"))))
PY
