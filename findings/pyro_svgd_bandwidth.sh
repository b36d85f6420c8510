#!/usr/bin/env bash
# Pyro 1.9.2: the kernel of `SVGD(mode="multivariate")` with `RBFSteinKernel()`.
# Guess: the paper's: one bandwidth, the median squared distance over log(n + 1), so that a typical pair has k = 1 / (n + 1) in any dimension.
# Seen: a bandwidth for each coordinate, of distances in it alone: for 50 particles in 20 dimensions log k of the median pair is -170
# instead of -3.9, so that hardly any particle repels another.
. "$(dirname "$0")/_packages.sh" pyro-ppl==1.9.2 torch==2.13.0 numpy==2.4.6
"$python" - <<'PY'
import math, torch
from pyro.infer import RBFSteinKernel

medians = {}
for dim in (1, 20):
    particles = torch.randn(50, dim, generator=torch.Generator().manual_seed(0))
    joint = RBFSteinKernel().log_kernel_and_grad(particles)[0].sum(-1)  # as the mode "multivariate" sums it
    medians[dim] = float(joint[~torch.eye(50, dtype=bool)].median())
print({dim: round(median, 2) for dim, median in medians.items()}, f"of the paper: {-math.log(51):.2f}")
raise SystemExit(not (abs(medians[1] + math.log(51)) < 0.01 and medians[20] < -100))
PY
