#!/usr/bin/env bash
# normflows 1.7.3: `log_prob` of the base distribution `UniformGaussian` outside the range of its uniform entries.
# Guess: minus infinity, or an error.
# Seen: the value of the inside: the density has no edge, and a flow with this base scores points it never draws as likely ones. The
# documentation says "uniform" and gives its width.
. "$(dirname "$0")/_packages.sh" normflows==1.7.3 torch==2.13.0 numpy==2.4.6
"$python" - <<'PY'
import torch, normflows

base = normflows.distributions.UniformGaussian(2, [0], torch.tensor([2.0, 1.0]))
largest = float(base.sample(10_000)[:, 0].abs().max())
inside, outside = base.log_prob(torch.tensor([[0.0, 0.0], [100.0, 0.0]])).tolist()
print(f"largest draw {largest:.3f}; log_prob at 0 {inside:.3f}, at 100 {outside:.3f}")
raise SystemExit(not (largest <= 1 and abs(inside - outside) < 1e-6))
PY
