#!/usr/bin/env bash
# GeomLoss 0.3.1, OTT-JAX 0.6.0: distances of two samples of which one is the other moved by (3, 0).
# Guess: SamplesLoss("sinkhorn", p=2) is the squared Wasserstein distance, 9, and "gaussian" the squared MMD.
# Seen: GeomLoss gives half of either, 4.5 and half of the V-statistic; OTT's divergence is 9. Tables that mix both differ by two.
. "$(dirname "$0")/_packages.sh" geomloss==0.3.1 torch==2.14.1 numpy==2.4.6 ott-jax==0.6.0 jax==0.10.2
"$python" - <<'PY'
import jax.numpy as jnp, torch
from geomloss import SamplesLoss
from ott.geometry.pointcloud import PointCloud
from ott.tools.sinkhorn_divergence import sinkhorn_divergence

a = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
b = a + torch.tensor([3.0, 0.0])
k = lambda x, y: torch.exp(-(torch.cdist(x, y) ** 2) / 2).mean()
half = float(SamplesLoss("sinkhorn", p=2, blur=0.01)(a, b))
whole = float(sinkhorn_divergence(PointCloud, jnp.array(a.numpy()), jnp.array(b.numpy()))[0])
loss, mmd2 = float(SamplesLoss("gaussian", blur=1.0)(a, b)), float(k(a, a) + k(b, b) - 2 * k(a, b))
print(f"GeomLoss {half:.3f}, OTT {whole:.3f}; gaussian {loss:.4f}, squared MMD {mmd2:.4f}")
raise SystemExit(not (abs(half - 4.5) < 0.01 and abs(whole - 9) < 0.01 and abs(loss / mmd2 - 0.5) < 1e-4))
PY
