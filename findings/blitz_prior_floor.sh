#!/usr/bin/env bash
# BLiTZ 0.2.8: the prior of a Bayesian layer with `prior_pi=1`, which leaves one normal of standard deviation `prior_sigma_1`.
# Guess: the logarithm of its density pulls a weight w back by w / sd^2.
# Seen: 1e-6 is added to the density: beyond some six standard deviations the log prior is -14.3 whatever the weight, and its gradient
# vanishes: 4e-6 in place of 80 at eight, 3.4 in place of 60 at six.
. "$(dirname "$0")/_packages.sh" blitz-bayesian-pytorch==0.2.8 torch==2.14.1 torchvision==0.29.1 numpy==2.1.3
"$python" - <<'PY'
import torch
from blitz.modules.weight_sampler import PriorWeightDistribution

prior, sd = PriorWeightDistribution(pi=1, sigma1=0.1), 0.1
found = {}
for sds in (0, 3, 6, 8, 20):
    weight = torch.tensor([sds * sd], requires_grad=True)
    value = prior.log_prior(weight)
    value.backward()
    found[sds] = float(value), float(weight.grad)
    exact = float(torch.distributions.Normal(0.0, sd).log_prob(weight.detach()))
    print(f"{sds:2} sd: log prior {found[sds][0]:8.3f} ({exact:8.3f}), gradient {found[sds][1]:8.3g} ({-sds / sd:g})")
near = abs(found[3][1] + 30) < 0.1
raise SystemExit(not (near and abs(found[6][1]) < 6 and abs(found[8][1]) < 1e-3 and abs(found[8][0] - found[20][0]) < 1e-3))
PY
