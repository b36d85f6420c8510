#!/usr/bin/env bash
# eryn 1.2.6: `get_evidence_estimate(method="stepping-stone")` and `stepping_stone_log_evidence` below it, on exact draws at each temperature.
# Guess: the log evidence of the model, -1.43, the nearer the more temperatures, with the error that it states.
# Seen: -16 with three temperatures, -93 with five, -549 with ten, each with an error below 0.1: log n is subtracted once for each step and
# temperature, (temperatures - 1)^2 times, and log likelihoods of walkers and temperatures are mixed. Thermodynamic integration is right.
. "$(dirname "$0")/_packages.sh" eryn==1.2.6 numpy==2.1.3 scipy==1.16.3
"$python" - 2>/dev/null <<'PY'
import numpy as np
from eryn.utils.utility import stepping_stone_log_evidence, thermodynamic_integration_log_evidence
from scipy.special import logsumexp
from scipy.stats import norm

random = np.random.default_rng(0)
exact, found = float(norm(0, 1.25**0.5).logpdf(1)), {}  # y = 1, y ~ N(x, 0.5), x ~ N(0, 1)
for temperatures in (3, 5, 10):
    betas = np.linspace(1, 0, temperatures) ** 3
    draws = [random.normal(4 * b / (1 + 4 * b), (1 + 4 * b) ** -0.5, size=(200, 10)) for b in betas]
    logs = np.stack([norm(x, 0.5).logpdf(1) for x in draws], axis=1)  # as eryn stores them: steps, temperatures, walkers
    rungs = zip(-np.diff(betas), np.moveaxis(logs, 1, 0)[1:])
    right = sum(logsumexp(step * log.ravel()) - np.log(log.size) for step, log in rungs)
    found[temperatures] = value, error = [float(x) for x in stepping_stone_log_evidence(betas, logs, repeats=10)]
    thermodynamic = float(thermodynamic_integration_log_evidence(betas, logs.mean(axis=(0, 2)))[0])
    print(f"{temperatures} temperatures: {value:.2f} +- {error:.2f}; by hand {right:.2f}, thermodynamic {thermodynamic:.2f}, exact {exact:.2f}")
raise SystemExit(not (abs(right - exact) < 0.1 and found[3][0] < -10 and found[10][0] < -400 and found[10][1] < 0.1))
PY
