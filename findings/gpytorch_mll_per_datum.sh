#!/usr/bin/env bash
# GPyTorch 1.15.2: the value of `ExactMarginalLogLikelihood`.
# Guess: log p(y), as the name and the documentation say: -20.62 for these 20 observations.
# Seen: log p(y) / 20. Evidences of models for data of unequal size, and priors added by hand, are on another scale; the page does not say so.
. "$(dirname "$0")/_packages.sh" gpytorch==1.15.2 torch==2.13.0 numpy==2.4.6
"$python" - <<'PY'
import gpytorch, torch

x = torch.linspace(0, 1, 20)
y = torch.sin(6 * x)


class Model(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean, self.kernel = gpytorch.means.ZeroMean(), gpytorch.kernels.RBFKernel()

    def forward(self, inputs):
        return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(likelihood)
seen = float(gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(x), y))
covariance = model.kernel(x).to_dense() + likelihood.noise * torch.eye(20)
right = float(torch.distributions.MultivariateNormal(torch.zeros(20), covariance).log_prob(y))
print(f"ExactMarginalLogLikelihood {seen:.4f}, log p(y) {right:.4f}, ratio {right / seen:.3f}")
raise SystemExit(abs(right / seen - 20) > 0.01)
PY
