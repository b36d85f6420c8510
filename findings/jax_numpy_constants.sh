#!/usr/bin/env bash
# JAX 0.10.2: a NumPy array that a compiled function has used in single precision keeps that type in later functions, also after
# `jax_enable_x64`. Guess: a new function is traced anew, in double precision. Seen: it fails with "Cannot lower jaxpr with verifier
# errors" until `jax.clear_caches()`.
. "$(dirname "$0")/_packages.sh" jax==0.10.2
"$python" - <<'PY'
import jax, numpy as np

data = np.array([1.0, 2.0, 4.0])
print("single:", jax.jit(lambda x: ((data - x) ** 2).sum())(1.0))
jax.config.update("jax_enable_x64", True)
again = lambda x: ((data - x) ** 2).sum()
try:
    print("double:", jax.jit(again)(1.0))
    failed = False
except ValueError as error:
    print("double:", str(error).splitlines()[0])
    failed = "verifier errors" in str(error)
jax.clear_caches()
value = jax.jit(again)(1.0)
print("after jax.clear_caches():", value, value.dtype)
raise SystemExit(not (failed and value == 10.0))
PY
