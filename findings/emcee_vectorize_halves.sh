#!/usr/bin/env bash
# emcee 3.1.6: what a density is called with when `vectorize=True`.
# Guess: all walkers at a time, so that the number of calls is that of steps.
# Seen: all at the start, then half of them twice a step: a density that has the number of walkers built in fails at the first step.
. "$(dirname "$0")/_packages.sh" emcee==3.1.6 numpy==2.4.6
"$python" - <<'PY'
import emcee, numpy as np

calls = []
density = lambda x: calls.append(len(x)) or -0.5 * (x**2).sum(axis=1)
start = np.random.default_rng(0).normal(size=(20, 2))
emcee.EnsembleSampler(20, 2, density, vectorize=True).run_mcmc(start, 5)
print(calls)
raise SystemExit(calls != [20] + [10] * 10)
PY
