#!/usr/bin/env bash
# normflows 1.7.3: `log_prob` of the base distribution `GaussianPCA`, with the covariance I + sigma^2 I in two dimensions.
# Guess: the normal log density, -1.848 at the mean.
# Seen: 1.328: the determinant of the covariance stands where its logarithm belongs, and (d / 2) log(2 pi) is added, not subtracted. As the
# error depends on the parameters, a fit by maximum likelihood finds another covariance: in one dimension the square root of the variance of the data.
. "$(dirname "$0")/_packages.sh" normflows==1.7.3 torch==2.13.0 numpy==2.4.6
"$python" - <<'PY'
import torch, normflows

base = normflows.distributions.GaussianPCA(2, latent_dim=2, sigma=0.1)
base.W.data = torch.eye(2)
seen = float(base.log_prob(torch.zeros(1, 2)).detach())
covariance = base.W.T @ base.W + 0.01 * torch.eye(2)
right = float(torch.distributions.MultivariateNormal(torch.zeros(2), covariance).log_prob(torch.zeros(2)).detach())
print(f"log_prob at the mean {seen:.3f}, of the normal density {right:.3f}")
raise SystemExit(not (abs(right + 1.848) < 1e-3 and abs(seen - 1.328) < 1e-3))
PY
