#!/usr/bin/env bash
# PyMC 5.28.5: `get_jaxified_logp(negative_logp=True)` returns the log density and `False` its negative.
# Guess: the option says what is returned. Seen: at 0 the standard normal has log density -0.919; `True` gives -0.919, `False` 0.919.
. "$(dirname "$0")/_packages.sh" pymc==5.28.5 jax==0.10.2
"$python" - <<'PY'
import numpy as np, pymc as pm
from pymc.sampling.jax import get_jaxified_logp

with pm.Model() as model:
    pm.Normal("x", 0, 1)
true = float(get_jaxified_logp(model, negative_logp=True)([np.array(0.0)]))
false = float(get_jaxified_logp(model, negative_logp=False)([np.array(0.0)]))
print(f"log density -0.919: negative_logp=True gives {true:.3f}, negative_logp=False gives {false:.3f}")
raise SystemExit(not (round(true, 3) == -0.919 and round(false, 3) == 0.919))
PY
