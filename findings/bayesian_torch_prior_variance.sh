#!/usr/bin/env bash
# bayesian-torch 0.5.0: `prior_variance` of its layers.
# Guess: the variance of the normal prior of a weight.
# Seen: it is taken as a standard deviation: with 4 the penalty is that of a prior of variance 16.
. "$(dirname "$0")/_packages.sh" bayesian-torch==0.5.0 torch==2.14.1 torchvision==0.29.1 numpy==2.1.3
"$python" - <<'PY'
import torch
from bayesian_torch.layers import LinearReparameterization
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

torch.manual_seed(0)
layer = LinearReparameterization(10, 20, prior_variance=4.0, posterior_mu_init=0.5, posterior_rho_init=-2.0, bias=False)
posterior = Normal(layer.mu_weight, softplus(layer.rho_weight))
told = float(layer.kl_loss())
by = {sd: float(kl_divergence(posterior, Normal(0.0, sd)).mean()) for sd in (2.0, 4.0)}
print(f"kl_loss {told:.4f}; mean divergence a weight by the prior's standard deviation {by}")
raise SystemExit(not (abs(told - by[4.0]) < 1e-3 < abs(told - by[2.0])))
PY
