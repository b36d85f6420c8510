#!/usr/bin/env bash
# langevin-sampling 1.4: `MetropolisAdjustedLangevin` on a standard normal density in the plane.
# Guess: the acceptance step keeps the variance at 1 whatever the step size, and a rejected proposal repeats a draw.
# Seen: variances of 0.6 to 0.7, and no repeated draw: `sample()` proposes until it accepts. After the first acceptance the current
# point and the proposal are one tensor, so that a rejection does not go back either.
. "$(dirname "$0")/_packages.sh" langevin-sampling==1.4 torch==2.13.0 numpy==2.4.6
"$python" - 2>/dev/null <<'PY'
import torch
from langevin_sampling.samplers import MetropolisAdjustedLangevin

found = {}
for step in (0.2, 0.5, 1.0):
    torch.manual_seed(0)
    evaluated = []
    start = torch.ones(2, requires_grad=True)
    energy = lambda x: evaluated.append(x.detach().clone()) or (x**2).sum() / 2
    sampler = MetropolisAdjustedLangevin(start, energy, lr=step, lr_final=0.999 * step)
    draws = torch.stack([sampler.sample()[0] for _ in range(5000)])
    rejected, repeated = len(evaluated) - 1 - len(draws), int((draws[1:] == draws[:-1]).all(1).sum())
    found[step] = [*draws[500:].var(0).tolist(), rejected, repeated]
    print(f"step {step}: variances {found[step][0]:.2f}, {found[step][1]:.2f} (1); rejected {rejected}, repeated {repeated}")
raise SystemExit(not all(max(a, b) < 0.85 and rejected > 500 and repeated == 0 for a, b, rejected, repeated in found.values()))
PY
