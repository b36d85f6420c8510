#!/usr/bin/env bash
# stanli 0.24.0: `Model.sample(seed=)` draws random numbers of `transformed data` anew.
# Guess: they are those of the model, which has a `seed` of its own and whose density is evaluated with them. Seen: the posterior mean
# moves with the seed of `sample` by many standard deviations.
. "$(dirname "$0")/_packages.sh" stanli==0.24.0
"$python" - <<'PY'
import numpy as np, stanli

code = """
transformed data { real y = normal_rng(0, 10); }
parameters { real m; }
model { m ~ normal(y, 0.01); }
"""
model = stanli.Model(stan_code=code, data={})
means = []
for seed in (1, 2):
    fit = model.sample(seed=seed, chains=1, warmup=300, samples=300, refresh=0)
    means.append(float(np.asarray(fit["m"]).mean()))
    print(f"seed {seed}: posterior mean {means[-1]:.3f} (posterior sd 0.01)")
raise SystemExit(abs(means[0] - means[1]) < 0.1)
PY
