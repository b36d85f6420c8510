#!/usr/bin/env bash
# bayesian-torch 0.5.0: `get_kl_loss(model)`, the penalty of mean-field inference.
# Guess: the divergence of the posterior of all weights from their prior, a sum over weights.
# Seen: a mean over the weights of each tensor, added up over tensors: 3.41 for 375.2 nats of a layer of 220 weights, so that
# likelihood and prior are weighed by the layers' shapes.
. "$(dirname "$0")/_packages.sh" bayesian-torch==0.5.0 torch==2.14.1 torchvision==0.29.1 numpy==2.1.3
"$python" - <<'PY'
import torch
from bayesian_torch.layers import LinearReparameterization
from bayesian_torch.models.dnn_to_bnn import get_kl_loss
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

torch.manual_seed(0)
layer = LinearReparameterization(10, 20, prior_variance=1.0, posterior_mu_init=0.5, posterior_rho_init=-2.0)
pairs = (layer.mu_weight, layer.rho_weight), (layer.mu_bias, layer.rho_bias)
exact = [kl_divergence(Normal(mean, softplus(rho)), Normal(0.0, 1.0)) for mean, rho in pairs]
told, whole, means = float(get_kl_loss(layer)), float(sum(e.sum() for e in exact)), float(sum(e.mean() for e in exact))
print(f"get_kl_loss {told:.4f}; sum over weights {whole:.1f}, means over tensors {means:.4f}")
raise SystemExit(not (abs(told - means) < 1e-3 and whole > 50 * told))
PY
