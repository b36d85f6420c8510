#!/usr/bin/env bash
# sbibm 1.1.0: `posterior_mean_error`, the "absolute error in posterior mean, normalized by std, averaged over dimensions".
# Guess: 3 for means that are off by three standard deviations in both of two dimensions, in any direction.
# Seen: 3, -3 and 0 for (3, 3), (-3, -3) and (3, -3): no absolute value is taken, so that errors cancel and a shift down ranks before the truth.
# (Only the module of the metric is loaded: the package as a whole imports simulators.)
. "$(dirname "$0")/_packages.sh" --no-deps sbibm==1.1.0 torch==2.13.0 numpy==2.4.6 typing-extensions==4.15.0 sympy==1.14.0 mpmath==1.3.0 \
  networkx==3.5 jinja2==3.1.6 markupsafe==3.0.2 fsspec==2025.9.0 filelock==3.19.1 setuptools==80.9.0
"$python" - 2>/dev/null <<'PY'
import importlib.util
from pathlib import Path
import torch

folder = Path(importlib.util.find_spec("sbibm").submodule_search_locations[0])
spec = importlib.util.spec_from_file_location("moments", folder / "metrics" / "moments.py")
moments = importlib.util.module_from_spec(spec)
spec.loader.exec_module(moments)

torch.manual_seed(0)
reference, draws, found = torch.randn(10_000, 2), torch.randn(10_000, 2), []
for shift in ((0.0, 0.0), (3.0, 3.0), (-3.0, -3.0), (3.0, -3.0)):
    samples = draws + torch.tensor(shift)
    found.append(float(moments.posterior_mean_error(samples, reference)))
    exact = ((samples.mean(0) - reference.mean(0)).abs() / reference.std(0)).mean()
    print(f"shift {shift}: {found[-1]:.2f} (by the formula {exact:.2f})")
raise SystemExit(not (abs(found[1] - 3) < 0.1 and abs(found[2] + 3) < 0.1 and abs(found[3]) < 0.1))
PY
